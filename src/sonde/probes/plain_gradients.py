"""Gradients of which there is least to tell: all of them finite."""

import math

from sonde.core.records import Float64
from sonde.kernels.columns import NUM_COLUMNS, Column, finite_norm

_FEW = 32  # tensors, whose norms are worked out faster one by one than as arrays


def plain_norm(numbers: Float64) -> float | None:
    """The norm of gradients, given their rows in one vector; None where there is more to them: NaN, an empty one.

    Example:
        >>> import numpy as np
        >>> plain_norm(np.array([2, 0, 0, 3.5, 0.5, 3, 4], np.float64))
        5.0
    """
    if not 0 < len(numbers) <= NUM_COLUMNS * _FEW:
        rows = numbers.reshape(-1, NUM_COLUMNS)
        is_plain = bool(rows[:, Column.COUNT].all()) and not rows[:, Column.NONFINITE].any()
        total = math.hypot(*finite_norm(rows).tolist()) if is_plain and len(rows) else math.nan
        return total if math.isfinite(total) else None
    values: list[float] = numbers.tolist()
    counts, nonfinite = values[Column.COUNT :: NUM_COLUMNS], values[Column.NONFINITE :: NUM_COLUMNS]
    if not all(counts) or any(nonfinite):
        return None
    moments = zip(counts, values[Column.MEAN :: NUM_COLUMNS], values[Column.M2 :: NUM_COLUMNS], strict=True)
    squares = [m2 + count * (mean * mean) for count, mean, m2 in moments]
    return math.hypot(*map(math.sqrt, squares)) if math.isfinite(sum(squares)) else None
