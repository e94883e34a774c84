"""GRD003 gradients-vanish-with-depth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import amount
from sonde.rules.history.progress import is_stuck
from sonde.rules.history.run_summary import RunSummary
from sonde.rules.layer_depth import matrices, slope
from sonde.rules.rule import Against, Cause, Claims, For, Look, Onset, Severity, Sighting, When
from sonde.signals.phases import Phase


class GradientsVanishWithDepthState(NamedTuple):
    """Looks in a row that found it, the first of them, and the first look of all."""

    num_looks: int = 0
    since: int = -1
    first_look: int = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class GradientsVanishWithDepth:
    """Gradients shrink on their way to the input, so that the early layers do not learn.

    What it detects:
        - The RMS gradient of the first weight matrix is below `share` of that of the last one.
        - The logarithms lie on a line over the order of at least four matrices, with R² above `fit`.
        - It is so at `num_looks` measurements in a row. That is information.
        - It is a warning if the loss is stuck at its start or at the cost of guessing. That
          can be said after 100 losses.
        - It can be said after 40 losses if the first matrix gets less than `share` squared of the gradient of the last
          one, and no more than 3% of the loss can be gone. Or if that was so at five measurements, the very first among
          them, outside of the warmup, and the loss has not fallen by a tenth.

    Why it matters:
        Layers that get a thousandth of the gradient stay as they were initialised. The other layers learn on random
        features, or nothing at all.

    Evidence:
        `grad/rms@…` over depth.

    What to do:
        Add residual connections and normalisation. Use activations like ReLU instead of sigmoid or tanh. Use He or
        Xavier initialisation. A higher learning rate does not help.

    When it is wrong:
        - The order is that in which modules were made. In models that are not a chain it is not the depth.
        - Adam evens out a factor of a hundred, so that such a model may learn all the same: then the finding is
          information.

    References:
        Hochreiter, Untersuchungen zu dynamischen neuronalen Netzen, 1991. Glorot and Bengio, AISTATS 2010.
    """

    code: ClassVar[str] = "GRD003"
    name: ClassVar[str] = "gradients-vanish-with-depth"
    onset: ClassVar[Onset] = Onset.BACKDATED
    needs: ClassVar[tuple[str, ...]] = ("grad/rms@",)
    reads: ClassVar[tuple[str, ...]] = needs
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.VANISHING_GRADIENTS: (For("gradients shrink towards the input"), For(when=When.ALARM)),
        Cause.LONG_SEQUENCE: For(),
        Cause.BAD_INITIALISATION: Against(),
        Cause.SATURATED_UNITS: Against(),
        Cause.LR_TOO_HIGH: Against(),
        Cause.DEAD_UNITS: Against("gradients shrink, but units do not fall silent"),
        Cause.PLATEAU: Against("gradients shrink towards the input"),
        Cause.GRADIENT_IMBALANCE: Against(),
        Cause.LR_TOO_LOW: Against(),
        Cause.NO_LEARNABLE_SIGNAL: Against(),
    }
    quiet_steps: ClassVar[int] = 200
    guide: ClassVar[str] = "vanishing"

    share: float = 0.01
    fit: float = 0.6
    num_looks: int = 2

    def init(self) -> GradientsVanishWithDepthState:
        """Before the first step."""
        return GradientsVanishWithDepthState()

    def waits(self, state: GradientsVanishWithDepthState) -> bool:
        """Whether the loss is looked at in between."""
        return state.num_looks >= self.num_looks

    def step(
        self, state: GradientsVanishWithDepthState, look: Look
    ) -> tuple[GradientsVanishWithDepthState, Sequence[Sighting]]:
        """Look at the layers where they were measured, and at the loss in between."""
        layers = look.view.layers("grad/rms")
        if layers is not None:
            deep = matrices(layers, look.views)
            line = slope(deep.values)
            found = line is not None and line.r_squared > self.fit and line.first < self.share * line.last
            since = state.since if state.num_looks else look.view.step
            first = state.first_look if state.first_look >= 0 else look.view.step
            state = GradientsVanishWithDepthState(*((state.num_looks + 1, since) if found else (0, -1)), first)
        if state.num_looks < self.num_looks or (layers is None and look.run.num_losses != 100):
            return state, ()
        known = layers if layers is not None else look.views.latest("grad/rms")
        assert known is not None
        deep = matrices(known, look.views)
        line = slope(deep.values)
        if line is None:
            return state, ()
        message = (
            f"gradients shrink by a factor of {amount(np.exp(line.per_layer))} a layer towards the input: RMS "
            f"{amount(line.first)} at the first weight matrix, {amount(line.last)} at the last"
        )
        evidence = look.evidence(f"grad/rms@{deep.names[0]}", line.first, line.last)
        nothing = line.first < self.share**2 * line.last
        hopeless = state.num_looks >= 5 and state.since == state.first_look and nothing
        alarm = is_stuck(look.run, soon=nothing) or (hopeless and _has_not_begun(look.run))
        severity = Severity.WARNING if alarm else Severity.INFO
        return state, (Sighting(severity, message, where=deep.names[:3], evidence=(evidence,), since=state.since),)


def _has_not_begun(run: RunSummary) -> bool:
    """Whether the loss is after 40 steps where it was, at a rate that is no longer rising."""
    if run.num_losses < 40 or run.phase is Phase.WARMUP or not run.loss_start > 0:
        return False
    return run.loss_best > 0.9 * run.loss_start
