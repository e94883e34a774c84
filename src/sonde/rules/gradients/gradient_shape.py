"""GRD007 gradient-shape."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.records import Float64
from sonde.rules.history.tracking import spread
from sonde.rules.layer_depth import latest_matrices
from sonde.rules.rule import Cause, Claims, For, Look, Severity, Sighting
from sonde.signals.peers import against_peers


class GradientShapeState(NamedTuple):
    """How many times in a row each parameter looked strange, where it did."""

    names: tuple[str, ...] = ()
    num_looks: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class GradientShape:
    """The gradient of a layer is not bell-shaped about zero, or differs from those of similar layers.

    What it detects:
        Any of these, of the percentiles of a weight matrix' gradient, at `num_looks` measurements in a row:
        - Heavy tails: p99 − p1 is more than `tails` times p75 − p25. A normal distribution has 3.4, a Laplace
          distribution 5.6.
        - Off centre: the median is further from 0 than p75 − p25.
        - Collapsed: p25 and p75 are both exactly 0.
        - Unlike its peers: its tails are more than 6 robust deviations heavier than those of the other weight matrices,
          and more than `tails`/2.

        It is always information.

    Why it matters:
        - Heavy tails come from few examples or tokens.
        - An off-centre gradient comes from a bias in the data or the loss.
        - A collapsed gradient comes from dead units or sparse inputs.

    Evidence:
        `grad/p1@…` to `grad/p99@…`.

    What to do:
        - Heavy tails: look at the batch, and clip gradients.
        - Off centre: normalise inputs and targets.
        - Collapsed: look for dead units.

    When it is wrong:
        - Sparse inputs and rare classes have such gradients by nature.
        - Modes are not counted: seven percentiles do not show them.

    References:
        Zhang et al., Why are adaptive methods good for attention models?, NeurIPS 2020.
    """

    code: ClassVar[str] = "GRD007"
    name: ClassVar[str] = "gradient-shape"
    needs: ClassVar[tuple[str, ...]] = ("grad/p50@",)
    reads: ClassVar[tuple[str, ...]] = needs
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.DEAD_UNITS: For(),
        Cause.BAD_BATCH: For(),
        Cause.UNNORMALISED_INPUTS: For(),
        Cause.PRECISION_UNDERFLOW: For(),
        Cause.LABEL_NOISE: For(),
    }
    quiet_steps: ClassVar[int] = 300
    guide: ClassVar[str] = "layer-not-learning"

    tails: float = 20.0
    num_looks: int = 3

    def init(self) -> GradientShapeState:
        """Before the first step."""
        return GradientShapeState()

    def step(self, state: GradientShapeState, look: Look) -> tuple[GradientShapeState, Sequence[Sighting]]:
        """Look at the parameters whose turn it is."""
        now, layers = look.view.layers("grad/p50"), latest_matrices(look.views, "grad/p50")
        if now is None or layers is None:
            return state, ()
        p1, p25, p50, p75, p99 = (_percentile(look, layers.names, q) for q in (1, 25, 50, 75, 99))
        quartiles = p75 - p25
        with np.errstate(divide="ignore", invalid="ignore"):
            tail = np.where(quartiles > 0, (p99 - p1) / quartiles, np.nan)
            z = against_peers(np.log(tail), floor=0.2).z
        said = {
            "heavy-tailed": tail > self.tails,
            "off centre": np.abs(p50) > quartiles,
            "collapsed at zero": (p25 == 0) & (p75 == 0),
            "much heavier-tailed than those of the other layers": (z > 6) & (tail > self.tails / 2),
        }
        measured, counts = set(now.names), dict(zip(state.names, state.num_looks, strict=True))
        strange: dict[str, list[str]] = {}
        for place, name in enumerate(layers.names):
            if name not in measured:
                continue
            words = [word for word, flags in said.items() if flags[place]]
            counts[name] = counts.get(name, 0) + 1 if words else 0
            if counts[name] >= self.num_looks:
                strange[name] = words
        state = GradientShapeState(tuple(counts), tuple(counts.values()))
        if not strange:
            return state, ()
        name, words = next(iter(strange.items()))
        place = layers.names.index(name)
        evidence = look.evidence(f"grad/p99@{name}", float(p99[place]))
        message = f"the gradients of `{name}` are {' and '.join(words)}"
        return state, (Sighting(Severity.INFO, message, where=tuple(strange), evidence=(evidence,)),)


def _percentile(look: Look, names: tuple[str, ...], q: int) -> Float64:
    layers = latest_matrices(look.views, f"grad/p{q}")
    if layers is None:
        return np.full(len(names), np.nan)
    return layers.values if layers.names == names else spread(layers, names)
