"""LOP010 clip-before-unscale."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sonde.rules.rule import Against, Cause, Claims, For, Look, Severity, Sighting
from sonde.rules.sticky_fact import StickyFact, kept


@dataclass(frozen=True, kw_only=True, slots=True)
class ClipBeforeUnscale:
    """Gradients are clipped while they still carry the loss scale.

    What it detects:
        - In one step torch clipped gradients, and the gradient scaler then found that `unscale_` had not been called.
        - The loss scale was above 1.

    Why it matters:
        The norm that is clipped is too large by the loss scale, which is 65,536 at first. Every step is cut to a tiny
        part of what was meant.

    Evidence:
        The fact `clip-before-unscale`: the loss scale, and the line of the clip. `clip/factor` far below 1 at every
        step.

    What to do:
        Call `scaler.unscale_(optimizer)` before `clip_grad_norm_`.

    When it is wrong:
        - The limit of the clip is multiplied by the loss scale by hand.

    References:
        PyTorch documentation, Automatic mixed precision examples, section gradient clipping.
    """

    code: ClassVar[str] = "LOP010"
    name: ClassVar[str] = "clip-before-unscale"
    needs: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[str, ...]] = ()
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.CLIP_BEFORE_UNSCALE: For("gradients were clipped before `unscale_`"),
        Cause.CLIP_TOO_AGGRESSIVE: Against("the clip's limit is not at fault"),
    }
    quiet_steps: ClassVar[int] = 100

    def init(self) -> StickyFact:
        """Before the first step."""
        return StickyFact()

    def step(self, state: StickyFact, look: Look) -> tuple[StickyFact, Sequence[Sighting]]:
        """Look at the facts of one more step."""
        state = kept(state, look, "clip-before-unscale")
        if state.since < 0:
            return state, ()
        message = f"gradients are clipped while they still carry the loss scale of {state.value:,.0f}{state.at}"
        return state, (Sighting(Severity.WARNING, message, state.where, since=state.since),)
