"""NUM003 loss-near-limit."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import amount
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Severity, Sighting, When
from sonde.rules.sticky_fact import StickyFact, kept
from sonde.signals.medians import middle


class LossNearLimitState(NamedTuple):
    """The format's fact, the last losses, and since when they are near its end."""

    fact: StickyFact = StickyFact()
    last: tuple[float, ...] = ()
    since: int = -1
    level: float = float("nan")
    """Of the losses when they first were near."""
    num_near: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class LossNearLimit:
    """A loss in float16 is near the largest number of the format.

    What it detects:
        - The loss is computed in float16.
        - The median of its last three magnitudes can double less than `doublings` times before it passes 65,504.
        - Warning: from the `patience`-th such step in a row on, unless the loss has fallen by a fifth since the first
          of them.
        - Information: before that.

    Why it matters:
        A batch that is a few times harder than most makes the loss infinite, and the next step every weight. A loss
        that is a sum is near the limit from the first step on, and nearer with each larger batch.

    Evidence:
        The fact `half-loss`; `loss` against 65,504.

    What to do:
        - Compute the loss in float32 (`output.float()` before it), or train in bf16.
        - Use the mean instead of the sum.

    When it is wrong:
        - A loss that stays as high for the whole training, with batches that never differ by much, does not overflow.
        - If the loss is given to Sonde as a plain number, its format is not known, and nothing is said.

    References:
        Micikevicius et al., Mixed precision training, ICLR 2018 (sums and losses in float32).
    """

    code: ClassVar[str] = "NUM003"
    name: ClassVar[str] = "loss-near-limit"
    needs: ClassVar[tuple[str, ...]] = ("loss",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.PRECISION_OVERFLOW: (
            For("the loss is near its format's largest number"),
            For("the loss stays near that number", when=When.ALARM),
        ),
        Cause.LR_TOO_HIGH: Against("the format explains why the loss overflowed", when=When.ALARM),
    }
    quiet_steps: ClassVar[int] = 100

    doublings: float = 2.0
    patience: int = 5

    def init(self) -> LossNearLimitState:
        """Before the first step."""
        return LossNearLimitState()

    def step(self, state: LossNearLimitState, look: Look) -> tuple[LossNearLimitState, Sequence[Sighting]]:
        """Look at one more loss."""
        view = look.view
        fact, loss = kept(state.fact, look, "half-loss"), abs(view.value("loss"))
        if fact is not state.fact:
            state = state._replace(fact=fact)
        if not math.isfinite(loss):
            return state, ()
        last = (*state.last, loss)[-3:]
        limit = fact.value
        level = middle(last)
        if fact.since < 0 or not level > limit * 2**-self.doublings:
            return LossNearLimitState(fact, last), ()
        is_new = not state.num_near
        state = LossNearLimitState(
            fact, last, view.step if is_new else state.since, level if is_new else state.level, state.num_near + 1
        )
        left = math.log2(limit / level)
        size = f"the loss of {amount(level)} in float16"
        message = f"{size} can double only {left:.1f} times before it overflows at {limit:,.0f}"
        evidence = Evidence(tag="loss", step=view.step, value=loss, expected=limit * 2**-self.doublings)
        sure = state.num_near >= self.patience and level > 0.8 * state.level
        severity = Severity.WARNING if sure else Severity.INFO
        return state, (Sighting(severity, message, evidence=(evidence,), since=state.since),)
