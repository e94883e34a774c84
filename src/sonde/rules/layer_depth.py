"""Statistics of the weight matrices, and how they go with depth."""

import functools
import math
import re
from typing import NamedTuple

import numpy as np

from sonde.core.records import Float64
from sonde.rules.step_view import Layers, StepViews


class Slope(NamedTuple):
    """The line through a statistic's logarithm against the order of layers, first to last."""

    per_layer: float
    r_squared: float
    first: float
    last: float


@functools.lru_cache(maxsize=1 << 17)
def kind_of(name: str) -> str:
    """A name without its numbers: layers of one kind share it.

    Example:
        >>> kind_of("blocks.11.mlp.2.weight")
        'blocks.#.mlp.#.weight'
    """
    return re.sub(r"\d+", "#", name)


def matrices(layers: Layers, views: StepViews) -> Layers:
    """The weights of linear, convolutional, recurrent and attention layers, in the order of the model, that of depth.

    Embeddings, normalisations and low-rank adapters are left out.
    """
    names, places = views.kinds.matrices(layers.names)
    return Layers(names, layers.values[places])


def latest_matrices(views: StepViews, path: str) -> Layers | None:
    """The latest values of a statistic of the weight matrices; None where it was never measured."""

    def compute() -> Layers | None:
        latest = views.latest(path)
        return None if latest is None else matrices(Layers(latest.names, latest.values), views)

    return views.derived(f"matrices of {path}", (path,), compute)


def latest_typical(views: StepViews, path: str) -> float:
    """The median of a statistic's latest finite values over the weight matrices; NaN where there are none.

    Of two in the middle the geometric mean: statistics of layers lie decades apart, and of an even number half may be
    of another kind, such as tables that start at zero.
    """

    def compute() -> float:
        layers = latest_matrices(views, path)
        finite = [] if layers is None else sorted(v for v in layers.values.tolist() if math.isfinite(v))
        low, high = finite[(len(finite) - 1) // 2 :][:1], finite[len(finite) // 2 :][:1]
        return math.sqrt(low[0] * high[0]) if finite else math.nan

    return views.derived(f"typical {path}", (path,), compute)


def slope(values: Float64) -> Slope | None:
    """The least-squares line of log values over their order; None below four positive finite values."""
    places = np.arange(len(values))[np.isfinite(values) & (values > 0)]
    if len(places) < 4:
        return None
    logs = np.log(values[places])
    way, logs = places - places.sum() / len(places), logs - logs.sum() / len(logs)
    per_layer, total = float(way.dot(logs)) / float(way.dot(way)), float(logs.dot(logs))
    rest = logs - per_layer * way
    r_squared = 1 - float(rest.dot(rest)) / total if total > 0 else 0.0
    return Slope(per_layer, r_squared, float(values[places[0]]), float(values[places[-1]]))
