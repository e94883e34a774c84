"""NUM004 bare-logarithm."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.rules.rule import Cause, Claims, Evidence, For, Look, Severity, Sighting, When
from sonde.rules.sticky_fact import StickyFact, kept


class BareLogarithmState(NamedTuple):
    """That logarithms are bare, and that what they are taken of vanishes."""

    bare: StickyFact = StickyFact()
    vanish: StickyFact = StickyFact()


@dataclass(frozen=True, kw_only=True, slots=True)
class BareLogarithm:
    """The loss takes logarithms of exponentials that come near zero or infinity.

    What it detects:
        - The graph of the loss takes the logarithm of a softmax, of exponentials over their sum, or of that sum, and
          nothing is added, clamped or shifted before.
        - Warning, for `horizon` steps: the model's outputs are past 0.6 of the limit of exponentials, and at their pace
          will reach the limit within 100 steps. In float32 a probability becomes zero once the outputs of a row spread
          by 103, and an exponential becomes infinite from 89 on (in float16 from 11 on).
        - Information: all other cases.

    Why it matters:
        A class with a probability of zero that turns out to be the right one has the loss −log 0. That is infinite, and
        one step later every weight is NaN. An exponential that overflows has the same effect.

    Evidence:
        The facts `log-of-probabilities` and `probabilities-vanish`; `loss`.

    What to do:
        - Use `log_softmax`, `logsumexp` or `cross_entropy` of the outputs. They are exact however far the outputs
          spread.
        - If the outputs spread that fast in the first steps, also lower the learning rate.

    When it is wrong:
        - Only the probabilities of right answers enter the loss, so outputs may spread as long as all answers stay
          right.
        - Outputs that grow fast may stop growing.
        - Sigmoids and the losses of compiled models are not looked at.

    References:
        Blanchard, Higham and Higham, Accurately computing the log-sum-exp and softmax functions, IMA J. Numer. Anal.
        41, 2021.
    """

    code: ClassVar[str] = "NUM004"
    name: ClassVar[str] = "bare-logarithm"
    needs: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[str, ...]] = ()
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.PRECISION_OVERFLOW: For("the exponentials in the loss come near their limit", when=When.ALARM),
    }
    quiet_steps: ClassVar[int] = 100

    horizon: int = 100

    def init(self) -> BareLogarithmState:
        """Before the first step."""
        return BareLogarithmState()

    def waits(self, state: BareLogarithmState) -> bool:
        """Whether something was said of the logarithm."""
        return state.bare.since >= 0 or state.vanish.since >= 0

    def step(self, state: BareLogarithmState, look: Look) -> tuple[BareLogarithmState, Sequence[Sighting]]:
        """Look at the facts of one more step."""
        bare = kept(state.bare, look, "log-of-probabilities")
        vanish = kept(state.vanish, look, "probabilities-vanish")
        if bare is not state.bare or vanish is not state.vanish:
            state = BareLogarithmState(bare, vanish)
        standing = vanish if vanish.since >= 0 else bare
        if standing.since < 0 or not math.isfinite(look.view.value("loss")):
            return state, ()
        message = "the loss takes the logarithm of exponentials, and nothing keeps these from zero or infinity"
        if vanish.since >= 0:
            reached = f"reached {vanish.value:.0f} at step {vanish.since}"
            limit = f"{vanish.get('limit'):.0f}"
            if dict(vanish.more).get("which") == "largest":
                message += f": the largest output {reached}, and exp is infinite beyond {limit}"
            else:
                message += f": the spread of outputs {reached}, and beyond {limit} the smallest probability is zero"
        evidence = Evidence(tag="loss", step=look.view.step, value=look.view.value("loss"))
        soon = vanish.since >= 0 and look.view.step - vanish.since <= self.horizon
        severity = Severity.WARNING if soon else Severity.INFO
        return state, (Sighting(severity, message, evidence=(evidence,), since=standing.since),)
