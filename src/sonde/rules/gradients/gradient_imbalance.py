"""GRD006 gradient-imbalance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.rules.depth import kind_of, matrices, slope
from sonde.rules.progress import is_hurt
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Severity, Sighting, When
from sonde.rules.scene import Layers


class GradientImbalanceState(NamedTuple):
    """Looks in a row that found it."""

    num_looks: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class GradientImbalance:
    """Layers of the same kind get gradients of very different size.

    What it detects:
        RMS gradients of three or more weight matrices of one kind (the same name but for numbers) more than `spread`
        times apart, at `num_looks` looks in a row, or ten times as far across two or all of them, where that is no
        steady fall with depth (GRD003 says that). Gradients that are exact zeros for the most part are left out. A
        warning while training is hurt, else information.

    Why it matters:
        One rate cannot suit all of them: what lets the small ones learn throws the large ones about.

    Evidence:
        `grad/rms@…` of the largest and the smallest.

    What to do:
        Bring the layers to one scale: their initialisation, a normalisation between them, a scale factor in the forward
        pass. Adam or layer-wise rates (LARS, LAMB) even it out.

    When it is wrong:
        Kinds are told by names; a Sequential holds different layers under like names. Adam is hardly touched by it.

    References:
        You, Gitman and Ginsburg, Large batch training of convolutional networks, 2017.
    """

    code: ClassVar[str] = "GRD006"
    name: ClassVar[str] = "gradient-imbalance"
    needs: ClassVar[tuple[str, ...]] = ("grad/rms@",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.GRADIENT_IMBALANCE: (For("layers get gradients of very different size"), For(when=When.ALARM)),
        Cause.BAD_INITIALISATION: For(),
        Cause.UNNORMALISED_INPUTS: For(),
        Cause.CLIP_TOO_AGGRESSIVE: Against(),
    }
    quiet_steps: ClassVar[int] = 200
    guide: ClassVar[str] = "layer-not-learning"

    spread: float = 100.0
    num_looks: int = 3

    def init(self) -> GradientImbalanceState:
        """Before the first step."""
        return GradientImbalanceState()

    def step(self, state: GradientImbalanceState, look: Look) -> tuple[GradientImbalanceState, Sequence[Sighting]]:
        """Look at the layers where they were measured."""
        layers = look.scene.layers("grad/rms")
        if layers is None:
            return state, ()
        widest = self._widest(_dense(matrices(layers, look.scenes), look.scenes.latest("grad/zeros")))
        state = GradientImbalanceState(state.num_looks + 1 if widest is not None else 0)
        if widest is None or state.num_looks < self.num_looks:
            return state, ()
        order = np.argsort(widest.values)
        large, small = int(order[-1]), int(order[0])
        high, low = float(widest.values[large]), float(widest.values[small])
        message = (
            f"RMS gradients of like layers are {high / low:.3g} times apart: "
            f"{high:.3g} at {widest.names[large]}, {low:.3g} at {widest.names[small]}"
        )
        evidence = Evidence(tag=f"grad/rms@{widest.names[large]}", step=look.scene.step, value=high, expected=low)
        severity = Severity.WARNING if is_hurt(look.picture) else Severity.INFO
        where = (widest.names[large], widest.names[small])
        return state, (Sighting(severity, message, where=where, evidence=(evidence,)),)

    def _widest(self, layers: Layers) -> Layers | None:
        """The kind that lies farthest apart, if that is too far and no fall with depth."""
        kinds: dict[str, list[int]] = {}
        for place, (name, value) in enumerate(zip(layers.names, layers.values.tolist(), strict=True)):
            if 0 < value < np.inf:
                kinds.setdefault(kind_of(name), []).append(place)
        kinds[""] = [place for places in kinds.values() for place in places]
        worst, widest = 1.0, None
        for kind, places in kinds.items():
            if len(places) < 2:
                continue
            values = layers.values[places]
            # Of two it cannot be said which is odd: the first and the last layer of a small net differ by nature.
            is_kind = kind and len(places) > 2
            apart = float(values.max() / values.min()) / (self.spread if is_kind else 10 * self.spread)
            if apart > worst and not ((line := slope(values)) is not None and line.r_squared > 0.8):
                worst, widest = apart, Layers(tuple(layers.names[place] for place in places), values)
        return widest


def _dense(layers: Layers, zeros: Layers | None) -> Layers:
    """Those whose gradients are not mostly exact zeros, as those of tables of which a batch touches few rows are."""
    if zeros is None:
        return layers
    sparse = {name for name, share in zip(zeros.names, zeros.values.tolist(), strict=True) if share > 0.8}
    places = [place for place, name in enumerate(layers.names) if name not in sparse]
    return Layers(tuple(layers.names[place] for place in places), layers.values[places])
