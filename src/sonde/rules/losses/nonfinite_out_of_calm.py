"""LOS013 nonfinite-out-of-calm."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Severity, Sighting


class NonfiniteOutOfCalmState(NamedTuple):
    """Calm steps in a row, the latest finite loss, and whether the loss was ever not finite."""

    num_calm: int = 0
    loss: float = float("nan")
    is_over: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class NonfiniteOutOfCalm:
    """The loss was ordinary up to the very step at which it is no number any more.

    What it detects:
        - The first loss that is NaN or infinite.
        - Before it, for `calm` steps in a row, neither the loss nor the gradient's norm was more than `score` robust
          deviations above its last 128 values.
        - Always information: LOS001 is the alarm.

    Why it matters:
        What diverges grows before it breaks. What breaks out of calm was broken from outside: a NaN in the batch, a
        division by zero or a logarithm of zero in the loss, a number beyond float16.

    Evidence:
        `loss` before that step, against its median.

    What to do:
        Look at the batch of that step: inputs, targets, masks, weights of examples. Then look for divisions, roots and
        logarithms in the loss.

    When it is wrong:
        Some explosions take one step: an update that is far too large from one iteration to the next.

    References:
        none; the reasoning is that of a cause that comes before its effect.
    """

    code: ClassVar[str] = "LOS013"
    name: ClassVar[str] = "nonfinite-out-of-calm"
    needs: ClassVar[tuple[str, ...]] = ("loss",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.NONFINITE_INPUT: For("nothing grew before it"),
        Cause.PRECISION_OVERFLOW: For("nothing grew before it"),
        Cause.LR_TOO_HIGH: Against("nothing grew before the loss was no number"),
        Cause.EXPLODING_GRADIENTS: Against("nothing grew before the loss was no number"),
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
        picture = look.picture
        if state.is_over or "loss" not in look.scene:
            return state, ()
        if math.isfinite(picture.loss):
            is_calm = not (picture.loss_z > self.score or picture.grad_z > self.score)
            return NonfiniteOutOfCalmState(state.num_calm + 1 if is_calm else 0, picture.loss), ()
        state = state._replace(is_over=True)
        if state.num_calm < self.calm:
            return state, ()
        message = (
            f"the loss was ordinary for {state.num_calm} steps ({state.loss:.4g} at the last of them) before it was no "
            "number"
        )
        evidence = Evidence(tag="loss", step=picture.step, value=picture.loss, expected=state.loss)
        return state, (Sighting(Severity.INFO, message, evidence=(evidence,)),)
