"""LOP009 accumulation-not-scaled."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sonde.core.quantities import count
from sonde.rules.rule import Against, Cause, Claims, For, Look, Severity, Sighting
from sonde.rules.sticky_fact import StickyFact, kept


@dataclass(frozen=True, kw_only=True, slots=True)
class AccumulationNotScaled:
    """Micro-batches are added up without dividing the loss by their number.

    What it detects:
        - Several micro-batches make a step.
        - The gradient at the output of each micro-batch is that of its whole mean loss: the loss was not divided by the
          number of micro-batches.
        - Sonde can tell this for cross-entropies and mean squared errors.

    Why it matters:
        The gradient is too large by a factor of the number of micro-batches, and so is the effective learning rate.

    Evidence:
        The fact `accumulation-not-scaled`: the number of micro-batches, and the line of the backward pass.

    What to do:
        Call `(loss / num_micro_batches).backward()`. Or divide the learning rate by the number of micro-batches.

    When it is wrong:
        - The learning rate was tuned with the sum.
        - The optimiser does not depend on the scale of gradients, such as Adam without clipping.

    References:
        Hugging Face, Fixing gradient accumulation, 2024.
    """

    code: ClassVar[str] = "LOP009"
    name: ClassVar[str] = "accumulation-not-scaled"
    needs: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[str, ...]] = ()
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.ACCUMULATION_NOT_SCALED: For("the loss of each micro-batch is not divided"),
        Cause.WARMUP_TOO_SHORT: Against("undivided accumulation explains too large steps"),
        Cause.EXPLODING_GRADIENTS: Against("undivided accumulation explains large gradients"),
        Cause.LR_TOO_HIGH: Against("undivided accumulation explains too large steps"),
    }
    quiet_steps: ClassVar[int] = 100

    def init(self) -> StickyFact:
        """Before the first step."""
        return StickyFact()

    def step(self, state: StickyFact, look: Look) -> tuple[StickyFact, Sequence[Sighting]]:
        """Look at the facts of one more step."""
        state = kept(state, look, "accumulation-not-scaled")
        if state.since < 0:
            return state, ()
        num = count(state.value, "micro-batch", "micro-batches")
        message = f"the gradients of {num} are added up without dividing the loss by their number{state.at}"
        evidence = look.evidence("loss/num_micro", look.run.accumulation)
        return state, (Sighting(Severity.WARNING, message, evidence=(evidence,), since=state.since),)
