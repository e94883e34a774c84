"""Curves drawn with block characters."""

import math
from collections.abc import Iterable, Sequence

BLOCKS = "▁▂▃▄▅▆▇█"
NON_FINITE = "×"


def sparkline(
    values: Sequence[float | None],
    *,
    height: int = 1,
    low: float | None = None,
    high: float | None = None,
    levels: str = BLOCKS,
    non_finite: str = NON_FINITE,
) -> list[str]:
    """Rows of text, top first, one column a value; where it is not finite, `non_finite` at the foot.

    The smallest finite value is one level high, the largest fills all rows.

    Args:
        values: What to draw; None leaves its column empty.
        height: Number of rows, at least 1.
        low: The value at the foot, where it is not the smallest.
        high: The value at the top, where it is not the largest.
        levels: The characters of a row, from low to high.
        non_finite: What stands for NaN and infinities.

    Example:
        >>> sparkline([4.0, 3.0, float("nan"), None, 1.0])
        ['█▆× ▁']
        >>> sparkline([3.0, 2.0, 1.0], height=2)
        ['█▁ ', '██▁']
        >>> sparkline([0.0, 2.0], high=4.0, levels="_.-=")
        ['_-']
    """
    finite = [value for value in values if value is not None and math.isfinite(value)]
    low = min(finite, default=0.0) if low is None else low
    high = max(finite, default=0.0) if high is None else high
    columns = [_column(value, low, high, height, levels, non_finite) for value in values]
    return ["".join(column[row] for column in columns) for row in range(height)]


def level(share: float, levels: str = BLOCKS) -> str:
    """The character for a height between 0 and 1.

    Example:
        >>> level(0.0) + level(0.5) + level(1.0)
        '▁▅█'
    """
    return levels[min(len(levels) - 1, max(0, round(share * (len(levels) - 1))))]


def spread(
    steps: Sequence[float], values: Sequence[float], *, width: int, span: tuple[float, float] | None = None
) -> list[float | None]:
    """Values at uneven steps as `width` columns: the mean where several meet, None where there is no value.

    A value that is not finite makes its column NaN, whatever it meets there.

    Args:
        steps: Rising, whole or not.
        values: One a step.
        width: Columns, at least 1.
        span: First and last step to show; those of `steps` where left out. What lies beyond is not drawn.

    Example:
        >>> spread([0, 1, 2, 9], [4.0, 2.0, 1.0, 7.0], width=5)
        [3.0, 1.0, None, None, 7.0]
    """
    if not steps:
        return []
    first, last = span or (steps[0], steps[-1])
    columns: list[list[float]] = [[] for _ in range(width)]
    for step, value in zip(steps, values, strict=True):
        if first <= step <= last:
            columns[int((step - first) * width // (last - first + 1))].append(value)
    return [_mean(column) if column else None for column in columns]


def held(columns: Iterable[float | None]) -> list[float | None]:
    """Columns in which a value lasts until the next one.

    Example:
        >>> held([None, 3.0, None, 7.0, None])
        [None, 3.0, 3.0, 7.0, 7.0]
    """
    filled: list[float | None] = []
    for value in columns:
        filled.append(filled[-1] if value is None and filled else value)
    return filled


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if all(map(math.isfinite, values)) else math.nan


def _column(value: float | None, low: float, high: float, height: int, levels: str, non_finite: str) -> str:
    if value is None:
        return " " * height
    if not math.isfinite(value):
        return " " * (height - 1) + non_finite
    num = len(levels)
    most = num * height
    # Halves first: the range of two huge values would be infinite.
    share = (value / 2 - low / 2) / (high / 2 - low / 2) if high / 2 > low / 2 else None
    filled = most // 2 if share is None else 1 + round(min(1.0, max(0.0, share)) * (most - 1))
    return "".join(f" {levels}"[min(num, max(0, filled - num * row))] for row in reversed(range(height)))
