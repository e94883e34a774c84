"""The series that come of a tensor's statistics: one table for gradients, weights and updates."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from sonde.core.frames import Float32
from sonde.core.records import Float64
from sonde.kernels.columns import Column, absmax, norm, rms, std, zero_fraction

Rows = Float64


def _of_finite(rows: Rows, values: Float64) -> Float64:
    return np.where(rows[:, Column.COUNT] > 0, values, np.nan)


# Name behind the family -> its value for every tensor at once; NaN of a tensor without a finite value.
STATISTICS: Mapping[str, Callable[[Rows], Float64]] = {
    "norm": norm,
    "rms": rms,
    "mean": lambda rows: _of_finite(rows, rows[:, Column.MEAN]),
    "std": std,
    "absmax": lambda rows: _of_finite(rows, absmax(rows)),
    "min": lambda rows: _of_finite(rows, rows[:, Column.MIN]),
    "max": lambda rows: _of_finite(rows, rows[:, Column.MAX]),
    "zeros": zero_fraction,
    "nonfinite": lambda rows: rows[:, Column.NONFINITE],
}


def tags(family: str, names: Sequence[str], statistics: Sequence[str]) -> list[str]:
    """The tags of a family, all statistics of the first tensor first.

    Example:
        >>> tags("grad", ["a.weight"], ["norm", "mean"])
        ['grad/norm@a.weight', 'grad/mean@a.weight']
    """
    return [f"{family}/{statistic}@{name}" for name in names for statistic in statistics]


def values(rows: Rows, statistics: Sequence[str]) -> Float32:
    """The values in the order of `tags`."""
    with np.errstate(over="ignore", invalid="ignore"):
        return (
            np.stack([STATISTICS[statistic](rows) for statistic in statistics], axis=1).astype(np.float32).reshape(-1)
        )
