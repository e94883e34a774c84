"""How fast steps come."""

from collections import deque
from typing import final

_WINDOW_S = 60.0
_MARK_S = 1.0


@final
class Pace:
    """Steps a second over the last minute, or over two steps where these take longer.

    Example:
        >>> pace = Pace()
        >>> for step in range(1, 200):
        ...     pace.put(step / 4, step)
        >>> pace.per_s
        4.0
    """

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque()
        self._last: tuple[float, int] | None = None

    def put(self, time: float, step: int) -> None:
        """A step was made at this time."""
        if self._last is not None and (step <= self._last[1] or time < self._last[0]):  # gone back to a checkpoint
            self._marks.clear()
        self._last = (time, step)
        if self._marks and time - self._marks[-1][0] < _MARK_S:
            return
        self._marks.append(self._last)
        while len(self._marks) > 2 and time - self._marks[0][0] > _WINDOW_S:
            self._marks.popleft()

    @property
    def per_s(self) -> float | None:
        """None where too little is known."""
        if self._last is None or not self._marks:
            return None
        (began, first), (ended, last) = self._marks[0], self._last
        return (last - first) / (ended - began) if last > first and ended > began else None
