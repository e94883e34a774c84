"""SCH001 lr-jump."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import amount
from sonde.rules.history.level import has_level
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Onset, Severity, Sighting


class LrJumpState(NamedTuple):
    """The rate and the highest one before this step, and the latest jump with what was usual before it."""

    lr: float = float("nan")
    peak: float = float("nan")
    at: int = -1
    before: float = float("nan")
    after: float = float("nan")
    peak_before: float = float("nan")
    loss: float = float("nan")
    scale: float = float("nan")
    num_worse: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class LrJump:
    """The learning rate jumps up from one step to the next.

    What it detects:
        - The learning rate rises by more than 5% from one step to the next, and not as part of a ramp. This is
          information: warmups in steps and restarts do the same.
        - It is a warning if the learning rate jumped to more than `factor` times its highest value before, and two
          losses within `reach` steps were `score` robust deviations and 20% above the usual loss.
        - A learning rate that goes back up to where it was before is a restart, and stays information.

    Why it matters:
        A few steps at a learning rate that is far too high ruin a run: units die, the optimiser's state is spoilt, the
        loss does not come back.

    Evidence:
        `lr` before and after, `loss` before and after.

    What to do:
        Find the line that sets the learning rate. Go back to the checkpoint before the jump, with the optimiser's
        state, which is spoilt too.

    When it is wrong:
        - The learning rate was raised by hand, with reason, and the loss rose for another reason at that time.

    References:
        Loshchilov and Hutter, SGDR, ICLR 2017 (restarts, which are healthy).
    """

    code: ClassVar[str] = "SCH001"
    name: ClassVar[str] = "lr-jump"
    onset: ClassVar[Onset] = Onset.SUDDEN
    needs: ClassVar[tuple[str, ...]] = ("lr",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.LR_SPIKE: For("the learning rate jumped"),
        Cause.LR_TOO_HIGH: Against("the learning rate was lower before it jumped"),
        Cause.BAD_INITIALISATION: Against("the training went well before the learning rate jumped"),
        Cause.GAIN_DRIFT: Against(),
        Cause.EXPLODING_GRADIENTS: Against("the learning rate jumped first"),
        Cause.ACTIVATION_EXPLOSION: Against("the learning rate jumped first"),
        Cause.DEAD_UNITS: Against("the learning rate jumped first"),
        Cause.WEIGHT_NORM_JUMP: Against("the learning rate jumped, which moved the weights"),
        Cause.BAD_BATCH: Against("the learning rate jumped at that time"),
    }
    quiet_steps: ClassVar[int] = 50
    guide: ClassVar[str] = "loss-spike"

    factor: float = 2.0
    score: float = 6.0
    reach: int = 20

    def init(self) -> LrJumpState:
        """Before the first step."""
        return LrJumpState()

    def step(self, state: LrJumpState, look: Look) -> tuple[LrJumpState, Sequence[Sighting]]:
        """Look at one more rate."""
        run = look.run
        if "lr" not in look.view:
            return state, ()
        sightings: list[Sighting] = []
        if run.lr_jumped and run.lr > state.lr:  # one that falls is a schedule in steps, or the way back
            state = state._replace(
                at=run.step,
                before=state.lr,
                after=run.lr,
                peak_before=state.peak,
                loss=run.loss_median,
                scale=run.loss_scale,
                num_worse=0,
            )
            sightings.append(self._sighting(Severity.INFO, state.lr, run.lr, look))
        up = state.after > self.factor * state.peak_before
        if state.at >= 0 and run.step - state.at <= self.reach and up and has_level(look):
            rise = run.loss - state.loss
            if not math.isfinite(run.loss) or rise > max(self.score * state.scale, 0.2 * abs(state.loss)):
                state = state._replace(num_worse=state.num_worse + 1)
            if state.num_worse >= 2:
                sightings = [self._sighting(Severity.WARNING, state.before, state.after, look, state)]
        if run.lr == state.lr:
            return state, sightings
        peak = float(np.fmax(state.peak, run.lr))
        return state._replace(lr=run.lr, peak=peak), sightings

    def _sighting(
        self, severity: Severity, before: float, after: float, look: Look, state: LrJumpState | None = None
    ) -> Sighting:
        step = look.run.step if state is None else state.at
        message = f"the learning rate jumped from {amount(before)} to {amount(after)} at step {step:,}"
        evidence = [Evidence(tag="lr", step=step, value=after, expected=before)]
        if state is not None:
            message += f", and the loss went from {amount(state.loss)} to {amount(look.run.loss)}"
            evidence.append(look.evidence("loss", look.run.loss, state.loss))
        return Sighting(severity, message, evidence=tuple(evidence), since=step)
