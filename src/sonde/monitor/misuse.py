"""What the training gives us that we cannot record: said in a line, and the training goes on."""

import reprlib


class Misuse(ValueError):
    """Something that the caller got wrong: the message is for the caller, and our traceback is of no use."""


class NotANumber(Misuse):
    """A value that is neither a number nor a tensor.

    Example:
        >>> print(NotANumber("0.3").named("loss"))
        `loss` is no number: got the str '0.3'; give a tensor or a number. It is not recorded.
    """

    def __init__(self, value: object, name: str = "a value") -> None:
        said = f"{name} is no number: got the {type(value).__name__} {_shown(value)}"
        super().__init__(f"{said}; give a tensor or a number. It is not recorded.")
        self._value = value

    def named(self, name: str) -> "NotANumber":
        """The same of a value with this name."""
        return NotANumber(self._value, f"`{name}`")


def _shown(value: object) -> str:
    try:
        return reprlib.repr(value)
    except Exception:  # of the user's own class
        return "that has no `repr`"
