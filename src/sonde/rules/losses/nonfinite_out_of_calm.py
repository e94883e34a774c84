"""LOS013 nonfinite-out-of-calm."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import amount, count
from sonde.rules.rule import Against, Cause, Claims, For, Look, Severity, Sighting


class NonfiniteOutOfCalmState(NamedTuple):
    """Calm steps in a row, the latest finite loss, and whether the loss was ever not finite."""

    num_calm: int = 0
    loss: float = float("nan")
    is_over: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class NonfiniteOutOfCalm:
    """The loss was ordinary up to the very step at which it became NaN or infinite.

    What it detects:
        - The loss is NaN or infinite for the first time.
        - For `calm` steps in a row before, neither the loss nor the gradient norm was more than `score` robust
          deviations above its last 128 values.
        - It is always information: LOS001 is the alarm.

    Why it matters:
        A divergence grows before it ends in NaN. A loss that breaks without warning was broken from outside: by a NaN
        in the batch, by a division by zero or a logarithm of zero in the loss, or by a number beyond float16.

    Evidence:
        `loss` before that step, against its median.

    What to do:
        Look at the batch of that step: inputs, targets, masks, weights of examples. Then look for divisions, roots and
        logarithms in the loss.

    When it is wrong:
        - Some explosions take one step: an update that is far too large from one iteration to the next.

    References:
        None; a cause comes before its effect.
    """

    code: ClassVar[str] = "LOS013"
    name: ClassVar[str] = "nonfinite-out-of-calm"
    needs: ClassVar[tuple[str, ...]] = ("loss",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.NONFINITE_INPUT: For("nothing grew before the loss broke"),
        Cause.PRECISION_OVERFLOW: For("nothing grew before the loss broke"),
        Cause.LR_TOO_HIGH: Against("nothing grew before the loss broke"),
        Cause.EXPLODING_GRADIENTS: Against("nothing grew before the loss broke"),
        Cause.WRONG_LOSS_REDUCTION: Against(),
    }
    quiet_steps: ClassVar[int] = 50
    guide: ClassVar[str] = "explosion"

    calm: int = 10
    score: float = 5.0

    def init(self) -> NonfiniteOutOfCalmState:
        """Before the first step."""
        return NonfiniteOutOfCalmState()

    def step(self, state: NonfiniteOutOfCalmState, look: Look) -> tuple[NonfiniteOutOfCalmState, Sequence[Sighting]]:
        """Look at one more loss."""
        run = look.run
        if state.is_over or "loss" not in look.view:
            return state, ()
        if math.isfinite(run.loss):
            is_calm = not (run.loss_z > self.score or run.grad_z > self.score)
            return NonfiniteOutOfCalmState(state.num_calm + 1 if is_calm else 0, run.loss), ()
        state = state._replace(is_over=True)
        if state.num_calm < self.calm:
            return state, ()
        message = (
            f"the loss was ordinary for {count(state.num_calm, 'step')}, {amount(state.loss)} at last, before it "
            "became NaN or infinite"
        )
        return state, (Sighting(Severity.INFO, message, evidence=(look.evidence("loss", run.loss, state.loss),)),)
