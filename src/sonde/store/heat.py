"""Several series as one picture: their buckets put into columns that are the same for all."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sonde.core.frames import Float32
from sonde.core.records import Float64, Int64
from sonde.store.pyramid import Means


class Heat(NamedTuple):
    """A picture of several series."""

    step: Int64
    """First step of each column."""
    value: Float32
    """A row a series; NaN where nothing was measured, infinite where a value was not finite."""


def heat(num_rows: int, pieces: Sequence[tuple[Sequence[int], Means]], columns: int) -> Heat:
    """One picture of the buckets of several tables.

    Args:
        num_rows: Of the picture.
        pieces: For each table, the rows of the picture that it has, and its buckets.
        columns: The most that the picture may have.

    Example:
        >>> ones, none = np.ones((1, 4), np.float32), np.zeros((1, 4), np.float32)
        >>> means = Means(np.arange(4), np.array([[1, 3, 5, 7]], np.float32), ones, none)
        >>> heat(1, [([0], means)], 2)
        Heat(step=array([0, 2]), value=array([[2., 6.]], dtype=float32))
    """
    steps = np.unique(np.concatenate([np.empty(0, np.int64), *(means.step for _, means in pieces)]))
    if not len(steps):
        return Heat(steps, np.empty((num_rows, 0), np.float32))
    if len(steps) > columns:
        first, last = int(steps[0]), int(steps[-1])
        edges = first + (last - first + 1) * np.arange(columns, dtype=np.int64) // columns
        steps = np.unique(edges[np.searchsorted(edges, steps, side="right") - 1])
    value = np.full((num_rows, len(steps)), np.nan, np.float32)
    for places, means in pieces:
        if not len(means.step):
            continue
        column = np.searchsorted(steps, means.step, side="right") - 1
        cuts = np.flatnonzero(np.diff(column, prepend=-1))
        picture = _summed_up(means, cuts)
        at = np.asarray(places)
        value[np.ix_(at, column[cuts])] = picture
    return Heat(steps, value)


def _summed_up(means: Means, cuts: Int64) -> Float32:
    finite: Float64 = np.add.reduceat(means.finite, cuts, axis=1, dtype=np.float64)
    known = np.where(means.finite > 0, means.mean, np.float32(0))
    total = np.add.reduceat(known * means.finite, cuts, axis=1, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        mean = (total / finite).astype(np.float32)
    mean[np.add.reduceat(means.nonfinite, cuts, axis=1) > 0] = np.inf
    return mean
