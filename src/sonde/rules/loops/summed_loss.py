"""LOP008 summed-loss."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sonde.core.quantities import amount
from sonde.rules.history.progress import is_hurt
from sonde.rules.rule import Against, Cause, Claims, For, Look, Severity, Sighting, When
from sonde.rules.sticky_fact import StickyFact, kept


@dataclass(frozen=True, kw_only=True, slots=True)
class SummedLoss:
    """The loss is a sum over the batch, not a mean.

    What it detects:
        - The loss was computed with `reduction="sum"` and nothing divided it, or the gradient at the output is too
          large by a factor of the number of rows in the batch.
        - It is information, and a warning if the training is stuck or the loss is far above its start.
        - Nothing is reported with an optimiser that divides by the second moment (Adam and its relatives): the scale of
          the gradient does not change its steps.

    Why it matters:
        Gradients grow with the batch and with the length of sequences. A learning rate that was chosen for a mean is
        too high by the same factor.

    Evidence:
        The fact `summed-loss`, with the line of the backward pass. The loss against its start.

    What to do:
        Use `reduction="mean"`, or divide the loss by the number of rows that count. Or divide the learning rate by that
        number.

    When it is wrong:
        - Sums on purpose, with a learning rate that suits them, learn well and stay information.

    References:
        Goyal et al., Accurate, large minibatch SGD, 2017, section 2 (learning rate and batch).
    """

    code: ClassVar[str] = "LOP008"
    name: ClassVar[str] = "summed-loss"
    needs: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[str, ...]] = ()
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.WRONG_LOSS_REDUCTION: (For("the loss is a sum"), For("the sum makes steps too large", when=When.ALARM)),
        Cause.UNNORMALISED_INPUTS: Against(),
        Cause.DEAD_UNITS: Against("the summed loss makes steps that kill units"),
        Cause.EMBEDDING_NORM_GROWTH: Against("the summed loss explains it"),
        Cause.OUTPUT_LOGIT_DRIFT: Against("the summed loss explains it"),
        Cause.ACTIVATION_EXPLOSION: Against("the summed loss explains it"),
        Cause.EXPLODING_GRADIENTS: Against("the summed loss explains large gradients"),
        Cause.LR_TOO_HIGH: (
            Against("the summed loss explains too large steps"),
            Against("the summed loss explains too large steps", when=When.ALARM),
        ),
        Cause.WARMUP_TOO_SHORT: Against("the summed loss explains too large steps"),
    }
    quiet_steps: ClassVar[int] = 100

    def init(self) -> StickyFact:
        """Before the first step."""
        return StickyFact()

    def step(self, state: StickyFact, look: Look) -> tuple[StickyFact, Sequence[Sighting]]:
        """Look at the facts of one more step."""
        state = kept(state, look, "summed-loss")
        if state.since < 0 or look.views.latest("optimizer/beta2") is not None:
            return state, ()
        severity = Severity.WARNING if is_hurt(look.run) else Severity.INFO
        run = look.run
        change = f"from {amount(run.loss_first)} to {amount(run.loss)}"
        verb = "rose" if run.loss > run.loss_first else "went"
        message = f"the loss is a sum over the batch, not a mean{state.at}; the loss {verb} {change}"
        evidence = look.evidence("loss", look.run.loss, look.run.loss_start)
        return state, (Sighting(severity, message, evidence=(evidence,), since=state.since),)
