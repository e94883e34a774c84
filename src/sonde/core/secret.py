"""A text that is shown to nobody."""

import hmac
from typing import Final

HIDDEN: Final = "•••"


class Secret:
    """A password, or an address that lets whoever knows it write to a channel; only `reveal` gives it.

    Printed, formatted, in a traceback and in JSON by `core.strict_json` it is `•••`; plain `json` refuses it. A pickle
    has nothing of it: what comes out of one cannot be revealed.

    Example:
        >>> token = Secret("xoxb-123")
        >>> print(token, repr(token), f"{token:>5}", token.reveal())
        ••• Secret(•••)   ••• xoxb-123
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value: str | None = value

    def reveal(self) -> str:
        """The text itself: for the line that sends it, nowhere else."""
        if self._value is None:
            raise ValueError("this secret came out of a pickle, which holds none; read the configuration again.")
        return self._value

    def __str__(self) -> str:
        return HIDDEN

    def __repr__(self) -> str:
        return f"Secret({HIDDEN})"

    def __format__(self, spec: str) -> str:
        return format(HIDDEN, spec)

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        if self._value is None or other._value is None:
            return self._value is other._value
        return hmac.compare_digest(self._value.encode(), other._value.encode())

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __copy__(self) -> "Secret":
        return self

    def __deepcopy__(self, memo: object) -> "Secret":
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return _emptied, ()


def _emptied() -> Secret:
    secret = Secret("")
    secret._value = None
    return secret
