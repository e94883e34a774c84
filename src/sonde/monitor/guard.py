"""What keeps Sonde's own faults from the training."""

from collections.abc import Callable
from types import TracebackType


class Guard:
    """Our own faults do not reach the training.

    Args:
        fail: Told about a fault.
        strict: Whether it is raised after all.
    """

    def __init__(self, fail: Callable[[Exception], None], *, strict: bool) -> None:
        self._fail, self._strict = fail, strict

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._strict or not isinstance(value, Exception):
            return False
        self._fail(value)
        return True

    def failed(self, error: Exception) -> None:
        """A fault that was caught where it happened.

        Raises:
            Exception: that fault, where the guard is strict.
        """
        if self._strict:
            raise error
        self._fail(error)
