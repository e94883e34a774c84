"""LOP001 missing-zero-grad."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sonde.rules.rule import Against, Cause, Claims, For, Look, Severity, Sighting
from sonde.rules.sticky_fact import StickyFact, kept


@dataclass(frozen=True, kw_only=True, slots=True)
class MissingZeroGrad:
    """Gradients are not cleared between steps.

    What it detects:
        - A backward pass begins with exactly the gradient that the optimiser has just applied, two steps in a row.
        - Sonde looks at a few parameters of each optimiser, at the moment at which a gradient arrives.

    Why it matters:
        Every step applies the sum of all gradients so far. The direction goes stale and the size grows, as with a
        momentum of 1.

    Evidence:
        The fact `missing-zero-grad`, with the line of the optimiser's step. `grad/norm` that grows, and `grad/cosine`
        near 1.

    What to do:
        Call `optimizer.zero_grad()` once a step, before the backward pass or after the optimiser's step.

    When it is wrong:
        - Gradients are kept after a step on purpose, as a momentum of one's own.

    References:
        Zhang et al., An empirical study on TensorFlow program bugs, ISSTA 2018. PyTorch documentation,
        `Optimizer.zero_grad`.
    """

    code: ClassVar[str] = "LOP001"
    name: ClassVar[str] = "missing-zero-grad"
    needs: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[str, ...]] = ()
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.MISSING_ZERO_GRAD: For("gradients were not cleared before the backward pass"),
        Cause.DEAD_UNITS: Against("gradients that pile up make steps that kill units"),
        Cause.ACTIVATION_EXPLOSION: Against("gradients that pile up explain large activations"),
        Cause.EXPLODING_GRADIENTS: Against("gradients add up because they are not cleared"),
        Cause.WARMUP_TOO_SHORT: Against("gradients that pile up explain too large steps"),
        Cause.LR_TOO_HIGH: Against("gradients that pile up explain too large steps"),
    }
    quiet_steps: ClassVar[int] = 100

    def init(self) -> StickyFact:
        """Before the first step."""
        return StickyFact()

    def step(self, state: StickyFact, look: Look) -> tuple[StickyFact, Sequence[Sighting]]:
        """Look at the facts of one more step."""
        state = kept(state, look, "missing-zero-grad")
        if state.since < 0:
            return state, ()
        message = f"gradients are not cleared: each backward pass adds to a gradient already applied{state.at}"
        return state, (Sighting(Severity.CRITICAL, message, state.where, since=state.since),)
