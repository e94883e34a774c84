"""LOS005 loss-plateau."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.rules.course import Course
from sonde.rules.falls import most_fall
from sonde.rules.levels import has_level, left
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Onset, Severity, Sighting, When
from sonde.signals.phases import Phase
from sonde.signals.stalls import Stall, stall

MEANINGS = {
    Stall.UNKNOWN: "of a kind that was not measured",
    Stall.CONVERGED: "converged: little is left to gain",
    Stall.FLAT: "a flat region: small gradients that agree",
    Stall.SADDLE: "small gradients that do not agree, as at a saddle",
    Stall.BOUNCING: "bouncing: gradients as large as ever",
}


class LossPlateauState(NamedTuple):
    """When the loss last fell beyond its noise, the validation loss then, and all losses."""

    fell: int = 0
    num_still: int = 0
    validation: float = float("nan")
    course: Course = Course()


@dataclass(frozen=True, kw_only=True, slots=True)
class LossPlateau:
    """The loss has fallen, and now it has stopped.

    What it detects:
        For `patience` losses the median of 50 has not been below that of the 50 before by two standard errors, after a
        descent of at least 5% of the start. The kind of plateau follows from what is left of the loss (against the
        trivial predictor or the start), of the gradient, and from the cosine of successive gradients: converged, flat,
        saddle or bouncing. A warning if it is not converged, more than `high` of the loss is left, the rate is not
        decaying, it has lasted for a third of the run in which the noise could not hide a fall by more than `hidden`
        (two standard errors of a line), and validation has not improved by 2% meanwhile; where it bounces, also more
        than `ended` of the loss, or gradients that turn back (cosine below −0.5): those of a model that has learned all
        there is are as large, but noise. Silent where the line through
        all losses falls by four standard errors with no more than 65% of the fall in its first half: 100 losses cannot
        see so slow a descent through its noise, the whole run does (LOS007). Judged at every tenth loss.

    Why it matters:
        Steps cost as much on a plateau as elsewhere. Its kind says whether to stop, to go faster, or to slow down.

    Evidence:
        `loss`, `grad/norm` against its start, `grad/cosine`.

    What to do:
        Converged: stop, or decay the rate for the last bit. Flat: raise the rate, or use an adaptive optimiser.
        Bouncing: halve the rate or decay it.

    When it is wrong:
        The floor of a noisy task is not known: a plateau at half of the start may be all there is. Before a late
        breakthrough a plateau looks the same.

    References:
        Dauphin et al., Identifying and attacking the saddle point problem, NeurIPS 2014. Smith, Cyclical learning
        rates, 2017.
    """

    code: ClassVar[str] = "LOS005"
    name: ClassVar[str] = "loss-plateau"
    onset: ClassVar[Onset] = Onset.BACKDATED
    needs: ClassVar[tuple[str, ...]] = ("loss",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.PLATEAU: (For("the loss has stopped moving"), For(when=When.ALARM)),
        Cause.UNDERFITTING: For("training has stopped high"),
        Cause.LABEL_NOISE: For("training stalls at a floor"),
        Cause.INSUFFICIENT_CAPACITY: (For("training has stopped"), For(when=When.ALARM)),
        Cause.NO_LEARNABLE_SIGNAL: Against("it has fallen before"),
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
        picture = look.picture
        state = state._replace(course=state.course.extended(picture.loss))
        if not math.isfinite(picture.loss) or math.isnan(picture.improvement_z):
            return state._replace(fell=picture.step, validation=picture.val_loss), ()
        if picture.improvement_z > 2:
            return LossPlateauState(picture.step, 0, picture.val_loss, state.course), ()
        state = state._replace(num_still=state.num_still + 1)
        if math.isnan(state.validation):
            state = state._replace(validation=picture.val_loss)
        if state.num_still < self.patience or not has_level(look) or not picture.progress > 0.05:
            return state, ()
        if (state.num_still - self.patience) % 10:
            return state, ()
        descent = state.course.descent()
        if descent is not None and descent.t < -4 and descent.early_share < 0.65:
            return state, ()
        share = left(picture)
        kind = Stall(int(stall(
            np.array([share]), np.array([picture.grad_median / picture.grad_start]), np.array([picture.grad_cosine])
        )[0]))  # fmt: skip
        lasting = state.num_still > max(2 * self.patience, picture.num_losses / 3)
        better = picture.val_loss < 0.98 * state.validation
        still = most_fall(state.course, state.num_still) < self.hidden * picture.loss_smooth
        # Gradients that are noise are what is left of them at the best there is, too.
        ended = kind is Stall.BOUNCING and share < self.ended and not picture.grad_cosine < -0.5
        bad = kind is not Stall.CONVERGED and not ended and share > self.high and lasting and still and not better
        severity = Severity.WARNING if bad and picture.phase is not Phase.DECAY else Severity.INFO
        message = (
            f"loss {picture.loss_smooth:.4g} has not fallen for {state.num_still} steps, "
            f"{share:.0%} of what it could fall is left; {MEANINGS[kind]}"
        )
        evidence = [Evidence(tag="loss", step=picture.step, value=picture.loss_smooth, expected=picture.loss_start)]
        if math.isfinite(picture.grad_median) and math.isfinite(picture.grad_start):
            norm = Evidence(tag="grad/norm", step=picture.step, value=picture.grad_median, expected=picture.grad_start)
            evidence.append(norm)
        if math.isfinite(picture.grad_cosine):
            evidence.append(Evidence(tag="grad/cosine", step=picture.step, value=picture.grad_cosine))
        return state, (Sighting(severity, message, evidence=tuple(evidence), since=state.fell),)
