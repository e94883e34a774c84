"""Which parameters are weight matrices, which are of one kind, and how a statistic goes with depth."""

import functools
import math
import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sonde.core.records import Float64
from sonde.rules.scene import Layers, Scenes

_WEIGHT = re.compile(r"(?:^|[._])(?:weight|w|kernel)(?:_[ih]h_l\d+(?:_reverse)?)?$|_proj_weight$|in_proj_weight$")
_NOT_DEEP = re.compile(
    r"(?:^|[._])(?:\w*emb\w*|wte|wpe|\w*norm\w*|ln\w*|bn\w*|lora\w*|pos\w*)(?:[._]|$)", re.IGNORECASE
)
_OF_WEIGHTS = ("weight/mean", "weight/std")


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


def matrices(layers: Layers, scenes: Scenes) -> Layers:
    """The weights of linear, convolutional and recurrent layers, in the order of the optimiser, which is that of depth.

    By their names, and by their values: a weight whose elements are all near 1 is a normalisation's. Embeddings,
    normalisations and low-rank adapters are left out. Shapes are not recorded.
    """
    names, places = _deep(layers.names, _unit_weights(scenes))
    return Layers(names, layers.values[places])


def latest_matrices(scenes: Scenes, path: str) -> Layers | None:
    """The latest values of a statistic of the weight matrices; None where it was never measured."""

    def compute() -> Layers | None:
        latest = scenes.latest(path)
        return None if latest is None else matrices(Layers(latest.names, latest.values), scenes)

    return scenes.derived(f"matrices of {path}", (path, *_OF_WEIGHTS), compute)


def latest_typical(scenes: Scenes, path: str) -> float:
    """The median of a statistic's latest finite values over the weight matrices; NaN where there are none.

    Of two in the middle the geometric mean: statistics of layers lie decades apart, and of an even number half may be
    of another kind, such as tables that start at zero.
    """

    def compute() -> float:
        layers = latest_matrices(scenes, path)
        finite = [] if layers is None else sorted(v for v in layers.values.tolist() if math.isfinite(v))
        low, high = finite[(len(finite) - 1) // 2 :][:1], finite[len(finite) // 2 :][:1]
        return math.sqrt(low[0] * high[0]) if finite else math.nan

    return scenes.derived(f"typical {path}", (path, *_OF_WEIGHTS), compute)


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


@functools.lru_cache(maxsize=64)  # the same names at every look
def _deep(names: tuple[str, ...], unit: frozenset[str]) -> tuple[tuple[str, ...], npt.NDArray[np.intp]]:
    kept = [place for place, name in enumerate(names) if _sounds_deep(name) and name not in unit]
    return tuple(names[place] for place in kept), np.array(kept, np.intp)


@functools.lru_cache(maxsize=1 << 17)
def _sounds_deep(name: str) -> bool:
    return _WEIGHT.search(name) is not None and _NOT_DEEP.search(name) is None


def _unit_weights(scenes: Scenes) -> frozenset[str]:
    def compute() -> frozenset[str]:
        means, deviations = scenes.latest("weight/mean"), scenes.latest("weight/std")
        if means is None or deviations is None:
            return frozenset()
        spread = dict(zip(deviations.names, deviations.values.tolist(), strict=True))
        pairs = zip(means.names, means.values.tolist(), strict=True)
        return frozenset(name for name, mean in pairs if 0.3 < mean < 3 and spread.get(name, np.inf) < 0.3 * mean)

    return scenes.derived("unit weights", _OF_WEIGHTS, compute)
