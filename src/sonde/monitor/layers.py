"""Statistics of every tensor, worked out for many steps at once: a call of numpy costs as much as many numbers."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from sonde.core.frames import Float32
from sonde.core.records import Float64
from sonde.kernels.columns import NUM_COLUMNS, Column, finite_norm, norm
from sonde.monitor.sheets import Key
from sonde.probes.statistics import STATISTICS, values

SERIES: Mapping[str, tuple[str, ...]] = {
    "grad": tuple(STATISTICS),
    "weight": tuple(STATISTICS),
    "update": ("norm", "rms", "mean", "std", "absmax"),
}
"""The statistics that are recorded of each kind."""


class Layers(NamedTuple):
    """The tensors of a key at a step."""

    norms: Float64
    """As measured."""
    finite_norms: Float64
    num_nonfinite: float
    values: Float32
    """Of all series in the order of `tags`, rescaled."""


class Step(NamedTuple):
    """The rows of a step, and what is to be made of them."""

    rows: Mapping[Key, Float64]
    """(tensors, 7), of the kinds in `SERIES`."""
    factors: Mapping[str, float]
    """What gradients are multiplied by, for each optimiser; 1 where it is not said."""
    infinite: Mapping[Key, frozenset[str]] = {}
    """The tensors whose values that are not finite are infinite, none of them NaN."""


def layers(steps: Sequence[Step]) -> list[dict[Key, Layers]]:
    """What the rows say, for each step by key."""
    places: dict[Key, list[int]] = {}
    for place, step in enumerate(steps):
        for key in step.rows:
            places.setdefault(key, []).append(place)
    found: list[dict[Key, Layers]] = [{} for _ in steps]
    for key, some in places.items():
        rows = np.stack([steps[place].rows[key] for place in some])
        norms, finite_norms, num_nonfinite = norm(rows), finite_norm(rows), rows[:, :, Column.NONFINITE].sum(1).tolist()
        if key.kind == "grad":
            rows = _rescaled(rows, np.array([steps[place].factors.get(key.optimizer, 1.0) for place in some]))
        series = values(rows.reshape(-1, NUM_COLUMNS), SERIES[key.kind]).reshape(len(some), -1)
        for i, place in enumerate(some):
            if infinite := steps[place].infinite.get(key):
                of_these = np.array([name in infinite for name in key.names])
                norms[i, of_these] = np.inf
                for statistic in ("norm", "rms"):
                    series[i, SERIES[key.kind].index(statistic) :: len(SERIES[key.kind])][of_these] = np.inf
        for i, place in enumerate(some):
            found[place][key] = Layers(norms[i], finite_norms[i], num_nonfinite[i], series[i])
    return found


def _rescaled(rows: Float64, factors: Float64) -> Float64:
    """The statistics of the same tensors times positive factors, one a step."""
    if (factors == 1).all():
        return rows
    rows = rows.copy()
    rows[:, :, [Column.MEAN, Column.MIN, Column.MAX]] *= factors[:, None, None]
    rows[:, :, Column.M2] *= factors[:, None] ** 2
    return rows
