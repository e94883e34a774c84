"""A series of any length in few columns, as it grows."""

import math
from typing import final

_MOST_COLUMNS = 128


@final
class CoarseSeries:
    """Keeps the means of equal stretches of a series; when there are 128 of them, each two become one.

    A stretch with a value that is not finite is NaN, and stays so however long it becomes.

    Example:
        >>> course = CoarseSeries()
        >>> for value in range(1000):
        ...     course.put(float(value))
        >>> len(course.columns), course.columns[:3], course.columns[-1]
        (125, (3.5, 11.5, 19.5), 995.5)
    """

    def __init__(self) -> None:
        self._means: list[float] = []
        self._stretch = 1
        self._sum, self._num = 0.0, 0

    def put(self, value: float) -> None:
        """The next value."""
        self._sum += value
        self._num += 1
        if self._num == self._stretch:
            self._means.append(self._mean)
            self._sum, self._num = 0.0, 0
            if len(self._means) == _MOST_COLUMNS:
                self._means = [(a + b) / 2 for a, b in zip(self._means[::2], self._means[1::2], strict=True)]
                self._stretch *= 2

    @property
    def columns(self) -> tuple[float, ...]:
        """The means, that of the unfinished stretch last."""
        return (*self._means, self._mean) if self._num else tuple(self._means)

    @property
    def _mean(self) -> float:
        mean = self._sum / self._num
        return mean if math.isfinite(mean) else math.nan
