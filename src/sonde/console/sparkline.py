"""A curve in one row of characters."""

import math
from collections.abc import Sequence

from sonde.console.glyphs import Glyphs


def sparkline(values: Sequence[float], *, width: int, glyphs: Glyphs) -> str:
    """A character for each value, or for several where there are more of them than columns: then their mean.

    The smallest finite value is the lowest level, the largest the highest. What is not finite makes its column
    `glyphs.lost`.

    Example:
        >>> from sonde.console.glyphs import ASCII, UNICODE
        >>> sparkline([4.0, 3.0, float("nan"), 1.0], width=10, glyphs=UNICODE)
        '█▆×▁'
        >>> sparkline(range(12), width=6, glyphs=ASCII)
        '_.=+#@'
    """
    columns = columned(values, width)
    finite = [value for value in columns if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    return "".join(_level(value, low, high, glyphs) for value in columns)


def columned(values: Sequence[float], width: int) -> list[float]:
    """At most `width` means of neighbours; NaN where one of them is not finite.

    Example:
        >>> columned([1.0, 3.0, 5.0, 7.0, float("inf")], 3)
        [1.0, 4.0, nan]
    """
    num = len(values)
    if num <= width:
        return [float(value) for value in values]
    columns: list[float] = []
    for i in range(max(0, width)):
        some = values[i * num // width : (i + 1) * num // width]
        mean = sum(some) / len(some)
        columns.append(mean if math.isfinite(mean) else math.nan)
    return columns


def _level(value: float, low: float, high: float, glyphs: Glyphs) -> str:
    if not math.isfinite(value):
        return glyphs.lost
    most = len(glyphs.levels) - 1
    span = high / 2 - low / 2  # halves, whose difference is finite
    return glyphs.levels[round((value / 2 - low / 2) / span * most) if span > 0 else most // 2]
