"""LOP009 accumulation-not-scaled."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Severity, Sighting
from sonde.rules.standing import Standing, stand


@dataclass(frozen=True, kw_only=True, slots=True)
class AccumulationNotScaled:
    """Micro-batches are added up without dividing the loss by their number.

    What it detects:
        Several micro-steps make a step, and the gradient at the output of each is that of the whole mean loss: nothing
        was divided. Known for cross-entropies and mean squared errors.

    Why it matters:
        The gradient is as many times too large as there are micro-steps, and so is the effective learning rate.

    Evidence:
        The fact `accumulation-not-scaled`: the number of micro-steps, and the line of the backward pass.

    What to do:
        Call `(loss / num_micro_steps).backward()`; or divide the learning rate by the number of micro-steps.

    When it is wrong:
        Where the rate was tuned with the sum, or the optimiser ignores the scale of gradients (Adam without clipping):
        it is information then, until the training suffers.

    References:
        Hugging Face, Fixing gradient accumulation, 2024.
    """

    code: ClassVar[str] = "LOP009"
    name: ClassVar[str] = "accumulation-not-scaled"
    needs: ClassVar[tuple[str, ...]] = ()
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.ACCUMULATION_NOT_SCALED: For("the gradient of each micro-step is undivided"),
        Cause.WARMUP_TOO_SHORT: Against("undivided accumulation explains too large steps"),
        Cause.EXPLODING_GRADIENTS: Against("undivided accumulation explains them"),
        Cause.LR_TOO_HIGH: Against("undivided accumulation explains too large steps"),
    }
    quiet_steps: ClassVar[int] = 100

    def init(self) -> Standing:
        """Before the first step."""
        return Standing()

    def step(self, state: Standing, look: Look) -> tuple[Standing, Sequence[Sighting]]:
        """Look at the facts of one more step."""
        state = stand(state, look, "accumulation-not-scaled")
        if state.since < 0:
            return state, ()
        message = (
            f"the gradients of {state.value:.0f} micro-steps are added, and none is divided by their number{state.at}"
        )
        evidence = Evidence(tag="loss/num_micro", step=look.scene.step, value=look.picture.accumulation)
        return state, (Sighting(Severity.WARNING, message, evidence=(evidence,), since=state.since),)
