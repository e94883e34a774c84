"""A curve drawn with block characters."""

import math
from collections.abc import Sequence

_EIGHTHS = " ▁▂▃▄▅▆▇█"
NON_FINITE = "×"


def sparkline(values: Sequence[float], *, height: int = 1) -> list[str]:
    """Rows of text, top first, one column a value; where it is not finite, `NON_FINITE` at the foot.

    The smallest finite value is one eighth of a row high, the largest fills all rows.

    Args:
        values: What to draw.
        height: Number of rows, at least 1.

    Example:
        >>> sparkline([4.0, 3.0, float("nan"), 1.0])
        ['█▆×▁']
        >>> sparkline([3.0, 2.0, 1.0], height=2)
        ['█▁ ', '██▁']
    """
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    columns = [_column(value, low, high, height) for value in values]
    return ["".join(column[row] for column in columns) for row in range(height)]


def spread(steps: Sequence[int], values: Sequence[float], *, width: int) -> list[float]:
    """Values at uneven steps as `width` columns: the mean where several meet, the last one where none is.

    A value that is not finite makes its column NaN, whatever it meets there.

    Example:
        >>> spread([0, 1, 2, 9], [4.0, 2.0, 1.0, 7.0], width=5)
        [3.0, 1.0, 1.0, 1.0, 7.0]
    """
    if not steps:
        return []
    span = steps[-1] - steps[0] + 1
    columns: list[list[float]] = [[] for _ in range(width)]
    for step, value in zip(steps, values, strict=True):
        columns[(step - steps[0]) * width // span].append(value)
    spread_out: list[float] = []
    for column in columns:
        if not column:
            spread_out.append(spread_out[-1])
        elif all(map(math.isfinite, column)):
            spread_out.append(sum(column) / len(column))
        else:
            spread_out.append(math.nan)
    return spread_out


def _column(value: float, low: float, high: float, height: int) -> str:
    if not math.isfinite(value):
        return " " * (height - 1) + NON_FINITE
    most = 8 * height
    # In float64 the range of float32 values cannot overflow.
    eighths = 1 + round((value - low) / (high - low) * (most - 1)) if high > low else most // 2
    return "".join(_EIGHTHS[min(8, max(0, eighths - 8 * row))] for row in reversed(range(height)))
