"""GRD006 gradient-imbalance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import amount
from sonde.rules.history.progress import is_hurt
from sonde.rules.layer_depth import kind_of, matrices, slope
from sonde.rules.rule import Against, Cause, Claims, For, Look, Severity, Sighting, When
from sonde.rules.step_view import Layers


class GradientImbalanceState(NamedTuple):
    """Looks in a row that found it."""

    num_looks: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class GradientImbalance:
    """Layers of the same kind get gradients of very different size.

    What it detects:
        - RMS gradients of three or more weight matrices of one kind are more than `spread` times apart. Matrices are of
          one kind if their names differ in numbers only.
        - Or RMS gradients of two matrices of one kind, or of any matrices of the model, are ten times as far apart.
        - It is so at `num_looks` measurements in a row.
        - A steady fall with depth is not reported here, but by GRD003.
        - Gradients of which more than 80% are exactly zero do not count.
        - It is information, and a warning if the training is stuck or the loss is far above its start.

    Why it matters:
        One learning rate cannot suit all of these layers: if it lets the small gradients learn, it throws the layers
        with large gradients about.

    Evidence:
        `grad/rms@…` of the layers with the largest and the smallest gradient.

    What to do:
        Bring the layers to one scale: by their initialisation, by normalisation between them, or by a scale factor in
        the forward pass. Adam and layer-wise learning rates (LARS, LAMB) even the difference out.

    When it is wrong:
        - Kinds are told by names: an `nn.Sequential` may hold different layers under similar names.
        - Adam hardly depends on the size of gradients.

    References:
        You, Gitman and Ginsburg, Large batch training of convolutional networks, 2017.
    """

    code: ClassVar[str] = "GRD006"
    name: ClassVar[str] = "gradient-imbalance"
    needs: ClassVar[tuple[str, ...]] = ("grad/rms@",)
    reads: ClassVar[tuple[str, ...]] = needs
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
        layers = look.view.layers("grad/rms")
        if layers is None:
            return state, ()
        widest = self._widest(_dense(matrices(layers, look.views), look.views.latest("grad/zeros")))
        state = GradientImbalanceState(state.num_looks + 1 if widest is not None else 0)
        if widest is None or state.num_looks < self.num_looks:
            return state, ()
        order = np.argsort(widest.values)
        large, small = int(order[-1]), int(order[0])
        high, low = float(widest.values[large]), float(widest.values[small])
        message = (
            f"the RMS gradient of `{widest.names[large]}` ({amount(high)}) is {amount(high / low)} times that of "
            f"`{widest.names[small]}` ({amount(low)})"
        )
        evidence = look.evidence(f"grad/rms@{widest.names[large]}", high, low)
        severity = Severity.WARNING if is_hurt(look.run) else Severity.INFO
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
