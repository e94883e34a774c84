"""What a row of statistics holds, and what follows from it.

A row a tensor, float64, all over the tensor's finite values (the real and imaginary parts of a complex one):

| column | |
|---|---|
| COUNT | finite values |
| NONFINITE | NaN and infinite values |
| ZEROS | values that are exactly zero, of either sign |
| MEAN | their mean, 0 where there is none |
| M2 | sum of squared deviations from the mean |
| MIN, MAX | smallest and largest value; +inf and -inf where there is none |

Everything here takes rows, any array of shape (..., 7), and gives an array of shape (...).
"""

import enum

import numpy as np

from sonde.core.records import Float64


class Column(enum.IntEnum):
    """A statistic's place in a row."""

    COUNT = 0
    NONFINITE = 1
    ZEROS = 2
    MEAN = 3
    M2 = 4
    MIN = 5
    MAX = 6


NUM_COLUMNS = len(Column)


def norm(rows: Float64) -> Float64:
    """L2 norm as measured: NaN where any value is NaN or infinite.

    Example:
        >>> norm(np.array([[2, 0, 0, 3.5, 0.5, 3, 4], [2, 1, 0, 3.5, 0.5, 3, 4]])).tolist()
        [5.0, nan]
    """
    return _as_measured(finite_norm(rows), rows)


def finite_norm(rows: Float64) -> Float64:
    """L2 norm of the finite values: sqrt(M2 + COUNT·MEAN²), two terms that cannot cancel."""
    return np.sqrt(rows[..., Column.M2] + rows[..., Column.COUNT] * rows[..., Column.MEAN] ** 2)


def rms(rows: Float64) -> Float64:
    """Root mean square, as measured; NaN of an empty tensor."""
    return _per_value(norm(rows) ** 2, rows) ** 0.5


def std(rows: Float64) -> Float64:
    """Standard deviation of the finite values, sqrt(M2/COUNT): the population's, since the tensor is all there is."""
    return _per_value(rows[..., Column.M2], rows) ** 0.5


def absmax(rows: Float64) -> Float64:
    """Largest magnitude of a finite value; 0 where there is none."""
    largest = np.maximum(np.abs(rows[..., Column.MIN]), np.abs(rows[..., Column.MAX]))
    return np.where(rows[..., Column.COUNT] > 0, largest, 0.0)


def zero_fraction(rows: Float64) -> Float64:
    """Zeros among all values, the non-finite ones included; NaN of an empty tensor."""
    total = rows[..., Column.COUNT] + rows[..., Column.NONFINITE]
    with np.errstate(invalid="ignore"):
        return np.asarray(rows[..., Column.ZEROS] / total)


def _as_measured(values: Float64, rows: Float64) -> Float64:
    return np.where(rows[..., Column.NONFINITE] > 0, np.nan, values)


def _per_value(totals: Float64, rows: Float64) -> Float64:
    with np.errstate(invalid="ignore"):
        return np.asarray(totals / rows[..., Column.COUNT])
