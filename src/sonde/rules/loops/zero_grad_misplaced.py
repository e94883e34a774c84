"""LOP002 zero-grad-misplaced."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sonde.rules.rule import Cause, Claims, For, Look, Severity, Sighting
from sonde.rules.sticky_fact import StickyFact, kept


@dataclass(frozen=True, kw_only=True, slots=True)
class ZeroGradMisplaced:
    """Gradients are cleared between the backward pass and the optimiser's step.

    What it detects:
        - Gradients other than zero reached the parameters, and when the optimiser stepped they were None or zero, two
          steps in a row.

    Why it matters:
        The optimiser has nothing to apply: weights do not move, apart from weight decay and old momentum.

    Evidence:
        The fact `zero-grad-misplaced`, with the line of the optimiser's step. `grad/norm` that is 0 or missing.

    What to do:
        Call `zero_grad()` before the backward pass or after `optimizer.step()`, never between the two.

    When it is wrong:
        - A library, such as one for sharding, takes gradients out of `.grad` on purpose and brings them to the
          optimiser in another way.

    References:
        PyTorch documentation, `Optimizer.zero_grad`.
    """

    code: ClassVar[str] = "LOP002"
    name: ClassVar[str] = "zero-grad-misplaced"
    needs: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[str, ...]] = ()
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.ZERO_GRAD_MISPLACED: For("gradients were cleared before the optimiser stepped"),
    }
    quiet_steps: ClassVar[int] = 100

    def init(self) -> StickyFact:
        """Before the first step."""
        return StickyFact()

    def step(self, state: StickyFact, look: Look) -> tuple[StickyFact, Sequence[Sighting]]:
        """Look at the facts of one more step."""
        state = kept(state, look, "zero-grad-misplaced")
        if state.since < 0:
            return state, ()
        message = f"gradients are cleared between the backward pass and the optimiser's step{state.at}"
        return state, (Sighting(Severity.CRITICAL, message, state.where, since=state.since),)
