"""Series of several ranks, side by side at the steps that all of them have."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from sonde.core.records import Float64, Int64

RankSeries = Mapping[int, tuple[Sequence[int] | Int64, Sequence[float] | Float64]]
"""Steps and values of one tag, by rank."""


class Aligned(NamedTuple):
    """One tag of all ranks."""

    ranks: tuple[int, ...]
    steps: Int64
    """Those that all ranks have with a finite value, rising."""
    values: Float64
    """A row a rank, a column a step."""


def aligned(series: RankSeries) -> Aligned:
    """The ranks, the steps that all have with a finite value, and the values, a row a rank.

    Example:
        >>> ranks, steps, values = aligned({0: ([1, 2, 3], [0.5, 0.6, 0.7]), 1: ([2, 3, 4], [0.6, 0.9, 1.0])})
        >>> ranks, steps, values
        ((0, 1), array([2, 3]), array([[0.6, 0.7],
               [0.6, 0.9]]))
    """
    ranks = tuple(sorted(series))
    kept = []
    for rank in ranks:
        steps, values = np.asarray(series[rank][0], np.int64), np.asarray(series[rank][1], np.float64)
        finite = np.isfinite(values)
        kept.append(dict(zip(steps[finite].tolist(), values[finite].tolist(), strict=True)))
    common = sorted(set.intersection(*(set(one) for one in kept))) if kept else []
    return Aligned(ranks, np.array(common, np.int64), np.array([[one[step] for step in common] for one in kept]))


def outliers(ranks: Sequence[int], values: Float64) -> tuple[str, ...]:
    """The ranks whose value is farthest from the median of all, by name: of two ranks both.

    Example:
        >>> outliers((0, 1, 2), np.array([1.0, 5.0, 1.1])), outliers((0, 1), np.array([1.0, 5.0]))
        (('rank 1',), ('rank 0', 'rank 1'))
    """
    far = np.abs(values - np.median(values))
    return tuple(f"rank {rank}" for rank, one in zip(ranks, far, strict=True) if one >= (1 - 1e-9) * far.max())
