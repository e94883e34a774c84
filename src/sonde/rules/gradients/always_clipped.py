"""GRD012 always-clipped."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import amount, share
from sonde.rules.history.progress import is_slow, is_stuck
from sonde.rules.rule import Against, Cause, Claims, For, Look, Onset, Severity, Sighting, When


class AlwaysClippedState(NamedTuple):
    """How often a gradient was clipped or could have been, and since when nearly every step is clipped."""

    num_clips: int = 0
    since: int = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class AlwaysClipped:
    """Nearly every gradient is clipped, so that the clip and not the gradient sets the size of a step.

    What it detects:
        - More than `share` of the latest 20 or so steps were clipped.
        - The clip cut their gradients to `factor` of their norm or less, on average.
        - At least `patience` steps with a clip have been seen.
        - It is information, and a warning if two things come together: gradients are cut to `harsh` of their norm or
          less, and the loss is stuck or falls along a shallow line that would need more than 500 steps from start to
          end.
        - The loss is judged after 100 losses. If gradients are cut to less than `hopeless`, it is judged after 40,
          provided that no more than 3% of the loss can be gone.

    Why it matters:
        All steps have the same length, however steep the loss is. That is a hidden learning rate, lower than the one
        that was set.

    Evidence:
        `clip/factor`; `clip/limit` against `grad/norm`; how straight the loss falls.

    What to do:
        Set the limit to about the median of `grad/norm`, so that only outliers are clipped. Or raise the learning rate.

    When it is wrong:
        - Adam does not depend on the size of gradients, so constant clipping slows nothing: the loss falls as it
          should, and the finding stays information.
        - Large language models are clipped often in their first thousands of steps.

    References:
        Zhang et al., Why gradient clipping accelerates training, ICLR 2020.
    """

    code: ClassVar[str] = "GRD012"
    name: ClassVar[str] = "always-clipped"
    onset: ClassVar[Onset] = Onset.BACKDATED
    needs: ClassVar[tuple[str, ...]] = ("clip/factor",)
    reads: ClassVar[tuple[str, ...]] = needs
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.CLIP_TOO_AGGRESSIVE: (For("nearly every gradient is clipped"), For(when=When.ALARM)),
        Cause.CLIP_BEFORE_UNSCALE: For(),
        Cause.BAD_BATCH: Against(),
        Cause.LR_TOO_LOW: Against("the clip, not the rate, makes steps small"),
        Cause.MISSING_CLIPPING: Against("gradients are clipped already"),
        Cause.WEIGHT_DECAY_TOO_STRONG: Against("the clip leaves so little that any decay outweighs it", When.ALARM),
    }
    quiet_steps: ClassVar[int] = 100

    share: float = 0.95
    factor: float = 0.5
    harsh: float = 0.1
    hopeless: float = 0.03
    patience: int = 30

    def init(self) -> AlwaysClippedState:
        """Before the first step."""
        return AlwaysClippedState()

    def step(self, state: AlwaysClippedState, look: Look) -> tuple[AlwaysClippedState, Sequence[Sighting]]:
        """Look at one more step."""
        run = look.run
        factor = look.view.value("clip/factor")
        if not math.isfinite(factor):
            return state, ()
        state = state._replace(num_clips=state.num_clips + 1)
        if not (run.clip_share > self.share and run.clip_factor < self.factor):
            return state._replace(since=-1), ()
        state = state._replace(since=state.since if state.since >= 0 else run.step)
        if state.num_clips < self.patience:
            return state, ()
        slow = is_stuck(run, soon=run.clip_factor < self.hopeless) or is_slow(run)
        severity = Severity.WARNING if slow and run.clip_factor < self.harsh else Severity.INFO
        limit = look.view.value("clip/limit")
        message = (
            f"nearly every gradient is clipped, to {share(run.clip_factor)} of its norm on average "
            f"(limit {amount(limit)}, norm before the clip {amount(run.grad_norm)})"
        )
        evidence = look.evidence("clip/factor", factor, 1.0)
        return state, (Sighting(severity, message, evidence=(evidence,), since=state.since),)
