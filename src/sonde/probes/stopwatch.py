"""How long the training thread waits for us in the middle of a forward or backward pass."""

import time
from types import TracebackType
from typing import final


@final
class Stopwatch:
    """Adds up the time inside its `with` blocks, which do not lie inside each other.

    Example:
        >>> clock = Stopwatch()
        >>> with clock:
        ...     pass
        >>> clock.take() > 0, clock.take()
        (True, 0.0)
    """

    def __init__(self) -> None:
        self._seconds = self._began = 0.0
        self.total_s = 0.0
        """Since it was made."""

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        seconds = time.perf_counter() - self._began
        self._seconds += seconds
        self.total_s += seconds

    def take(self) -> float:
        """The seconds since the last call."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds
