"""NUM004 bare-logarithm."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.rules.rule import Cause, Claims, Evidence, For, Look, Severity, Sighting, When
from sonde.rules.standing import Standing, stand


class BareLogarithmState(NamedTuple):
    """That logarithms are bare, and that what they are taken of vanishes."""

    bare: Standing = Standing()
    vanish: Standing = Standing()


@dataclass(frozen=True, kw_only=True, slots=True)
class BareLogarithm:
    """The loss takes logarithms of exponentials that come near zero or infinity.

    What it detects:
        The graph of the loss takes a logarithm of a softmax, of exponentials over their sum, or of that sum, with
        nothing added, clamped or shifted: information. A warning, for `horizon` steps, once the model's outputs are
        past 0.6 of where exponentials end, at a pace at which they are there within 100 steps: in float32 a probability
        is zero where the outputs of a row spread by 103, an exponential infinite from 89 on, in float16 from 11 on.

    Why it matters:
        A class that is ruled out so firmly and then is the right one has the loss −log 0: infinity, and NaN in every
        weight one step later. An exponential that overflows does it by itself.

    Evidence:
        The facts `log-of-probabilities` and `probabilities-vanish`; `loss`.

    What to do:
        `log_softmax`, `logsumexp` or `cross_entropy` of the outputs instead of logarithms of exponentials: they are
        exact however far the outputs spread. Outputs that spread that fast in the first steps also mean a rate that is
        too high.

    When it is wrong:
        Only the probabilities of right answers enter the loss: outputs may spread while all answers stay right, and
        outputs that grow fast may stop.
        Sigmoids, and losses of compiled models, are not looked at.

    References:
        Blanchard, Higham and Higham, Accurately computing the log-sum-exp and softmax functions, IMA J. Numer. Anal.
        41, 2021.
    """

    code: ClassVar[str] = "NUM004"
    name: ClassVar[str] = "bare-logarithm"
    needs: ClassVar[tuple[str, ...]] = ()
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.PRECISION_OVERFLOW: For("the loss's exponentials come near their end", when=When.ALARM),
    }
    quiet_steps: ClassVar[int] = 100

    horizon: int = 100

    def init(self) -> BareLogarithmState:
        """Before the first step."""
        return BareLogarithmState()

    def step(self, state: BareLogarithmState, look: Look) -> tuple[BareLogarithmState, Sequence[Sighting]]:
        """Look at the facts of one more step."""
        bare = stand(state.bare, look, "log-of-probabilities")
        vanish = stand(state.vanish, look, "probabilities-vanish")
        if bare is not state.bare or vanish is not state.vanish:
            state = BareLogarithmState(bare, vanish)
        standing = vanish if vanish.since >= 0 else bare
        if standing.since < 0 or not math.isfinite(look.scene.value("loss")):
            return state, ()
        message = "the loss takes the logarithm of exponentials, with nothing that keeps them from zero or infinity"
        if vanish.since >= 0:
            reached = f"reached {vanish.value:.0f} at step {vanish.since}"
            limit = f"{vanish.get('limit'):.0f}"
            if dict(vanish.more).get("which") == "largest":
                message += f": the largest output {reached}, and exp is infinite beyond {limit}"
            else:
                message += f": the spread of outputs {reached}, and beyond {limit} the smallest probability is zero"
        evidence = Evidence(tag="loss", step=look.scene.step, value=look.scene.value("loss"))
        soon = vanish.since >= 0 and look.scene.step - vanish.since <= self.horizon
        severity = Severity.WARNING if soon else Severity.INFO
        return state, (Sighting(severity, message, evidence=(evidence,), since=standing.since),)
