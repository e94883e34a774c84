"""LOS005 loss-plateau."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import amount, count, share
from sonde.rules.history.level import has_level, left
from sonde.rules.history.most_fall import most_fall
from sonde.rules.rule import Against, Cause, Claims, For, Look, Onset, Severity, Sighting, When
from sonde.signals.phases import Phase
from sonde.signals.stalls import Stall, stall

MEANINGS = {
    Stall.UNKNOWN: "on a plateau of a kind that was not measured",
    Stall.CONVERGED: "converged, with little left to gain",
    Stall.FLAT: "in a flat region, with small gradients that agree",
    Stall.SADDLE: "on a saddle, by small gradients that do not agree",
    Stall.BOUNCING: "bouncing, with gradients as large as ever",
}


class LossPlateauState(NamedTuple):
    """When the loss last fell beyond its noise, and the validation loss then."""

    fell: int = 0
    num_still: int = 0
    validation: float = float("nan")


@dataclass(frozen=True, kw_only=True, slots=True)
class LossPlateau:
    """The loss has fallen, and now it has stopped falling.

    What it detects:
        - The loss has come down by at least 5% of its start.
        - For `patience` losses it has not fallen over the last 100 losses by two standard errors. It is judged at every
          tenth loss.
        - The kind of plateau (converged, flat, saddle or bouncing) follows from how much of the loss and of the
          gradient is left, and from the cosine of successive gradients.
        - It is a warning if the plateau is not converged and all of these hold: more than `high` of the loss is left;
          the learning rate is not decaying; the plateau has lasted for a third of the run; its noise cannot hide a fall
          by more than `hidden`; and validation has not improved by 2% meanwhile.
        - If the loss bounces, the warning also needs more than `ended` of the loss left, or gradients that turn back
          (cosine below −0.5): the gradients of a model that has learned all there is are as large, but noise.
        - Nothing is reported if the line through all losses falls by four standard errors and not mainly in its first
          half. 100 losses cannot show so slow a descent through their noise; LOS007 judges the whole run.

    Why it matters:
        Steps cost as much on a plateau as elsewhere. The kind of plateau says whether to stop, to go faster or to slow
        down.

    Evidence:
        `loss`, `grad/norm` against its start, `grad/cosine`.

    What to do:
        - Converged: stop, or let the learning rate decay for the last bit.
        - Flat: raise the learning rate, or use an adaptive optimiser.
        - Bouncing: halve the learning rate, or let it decay.

    When it is wrong:
        - The floor of a noisy task is not known: a plateau at half of the start may be all there is.
        - A plateau before a late breakthrough looks the same.

    References:
        Dauphin et al., Identifying and attacking the saddle point problem, NeurIPS 2014. Smith, Cyclical learning
        rates, 2017.
    """

    code: ClassVar[str] = "LOS005"
    name: ClassVar[str] = "loss-plateau"
    onset: ClassVar[Onset] = Onset.BACKDATED
    needs: ClassVar[tuple[str, ...]] = ("loss",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.PLATEAU: (For("the loss has stopped falling"), For(when=When.ALARM)),
        Cause.UNDERFITTING: For("the loss has stopped falling at a high level"),
        Cause.LABEL_NOISE: For("the loss stalls at a floor"),
        Cause.INSUFFICIENT_CAPACITY: (For("the loss has stopped falling"), For(when=When.ALARM)),
        Cause.NO_LEARNABLE_SIGNAL: Against("the loss has fallen before"),
        Cause.MISSING_LR_DECAY: Against(),
    }
    quiet_steps: ClassVar[int] = 50

    patience: int = 50
    high: float = 0.6
    hidden: float = 0.1
    ended: float = 0.84

    def init(self) -> LossPlateauState:
        """Before the first step."""
        return LossPlateauState()

    def step(self, state: LossPlateauState, look: Look) -> tuple[LossPlateauState, Sequence[Sighting]]:
        """Look at one more step."""
        run = look.run
        if not math.isfinite(run.loss) or math.isnan(run.improvement_z):
            return state._replace(fell=run.step, validation=run.val_loss), ()
        if run.improvement_z > 2:
            return LossPlateauState(run.step, 0, run.val_loss), ()
        state = state._replace(num_still=state.num_still + 1)
        if math.isnan(state.validation):
            state = state._replace(validation=run.val_loss)
        if state.num_still < self.patience or not has_level(look) or not run.progress > 0.05:
            return state, ()
        if (state.num_still - self.patience) % 10:
            return state, ()
        trend = run.losses.trend()
        if trend is not None and trend.t < -4 and trend.early_share < 0.65:
            return state, ()
        rest = left(run)
        kind = Stall(int(stall(
            np.array([rest]), np.array([run.grad_median / run.grad_start]), np.array([run.grad_cosine])
        )[0]))  # fmt: skip
        lasting = state.num_still > max(2 * self.patience, run.num_losses / 3)
        better = run.val_loss < 0.98 * state.validation
        still = most_fall(run.losses, state.num_still) < self.hidden * run.loss_smooth
        # Gradients that are noise are what is left of them at the best there is, too.
        ended = kind is Stall.BOUNCING and rest < self.ended and not run.grad_cosine < -0.5
        bad = kind is not Stall.CONVERGED and not ended and rest > self.high and lasting and still and not better
        severity = Severity.WARNING if bad and run.phase is not Phase.DECAY else Severity.INFO
        message = (
            f"the loss, {amount(run.loss_smooth)}, has not fallen for {count(state.num_still, 'step')} and is "
            f"{share(rest)} of that of an untrained model; the loss is {MEANINGS[kind]}"
        )
        evidence = [look.evidence("loss", run.loss_smooth, run.loss_start)]
        if math.isfinite(run.grad_median) and math.isfinite(run.grad_start):
            norm = look.evidence("grad/norm", run.grad_median, run.grad_start)
            evidence.append(norm)
        if math.isfinite(run.grad_cosine):
            evidence.append(look.evidence("grad/cosine", run.grad_cosine))
        return state, (Sighting(severity, message, evidence=tuple(evidence), since=state.fell),)
