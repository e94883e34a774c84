"""WGT004 weights-shrink."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import amount, share
from sonde.rules.history.level import has_level, left
from sonde.rules.rule import Against, Cause, Claims, For, Look, Onset, Severity, Sighting, When


class WeightsShrinkState(NamedTuple):
    """The norm of all weights at first, at its largest and now, and how many of the looks saw it fall."""

    first: float = float("nan")
    now: float = float("nan")
    falls: int = 0
    looks: int = 0
    first_step: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightsShrink:
    """Weights shrink, and the loss stays near that of an untrained model.

    What it detects:
        - The norm of all weights is below `shrunk` of what it was at first, after at least five further measurements,
          four fifths of which saw it fall or stay below that. This is information.
        - It is a warning after 100 steps if more than `high` of an untrained model's loss is left and the loss does not
          fall beyond its noise.
        - It is a warning after 40 losses already if weight decay is clearly the reason: the norm is below
          `soon_shrunk`; learning rate × decay × steps is above 1, so that decay alone would leave less than 1/e of any
          weight; more than `high` of the loss is left; and the model did not come trained.
        - It is a warning, too, if the loss does not measure progress, the norm is below `gone` of what it was, and the
          model did not come trained.
        - Nothing is reported if the optimiser is known to have no weight decay.

    Why it matters:
        Weight decay takes more away than gradients add: the function that the model computes fades to a constant.

    Evidence:
        `weight/norm` at first and now; `optimizer/weight_decay@…`.

    What to do:
        Divide the weight decay by a hundred, and do not apply it to normalisation layers and biases. With decoupled
        decay (AdamW) the product of learning rate and decay counts: above 1e-3 a step it halves weights within 700
        steps.

    When it is wrong:
        - Networks with normalisation after each layer do not depend on the size of weights.
        - After a large initialisation, weights shrink healthily at first.

    References:
        Loshchilov and Hutter, Decoupled weight decay regularization, ICLR 2019. van Laarhoven, L2 regularization versus
        batch and weight normalization, 2017.
    """

    code: ClassVar[str] = "WGT004"
    name: ClassVar[str] = "weights-shrink"
    onset: ClassVar[Onset] = Onset.BACKDATED
    needs: ClassVar[tuple[str, ...]] = ("weight/norm",)
    reads: ClassVar[tuple[str, ...]] = needs
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.WEIGHT_DECAY_TOO_STRONG: (
            For("weights shrink and the loss stays near that of an untrained model"),
            For(when=When.ALARM),
        ),
        Cause.UNDERFITTING: Against("weight decay shrinks the weights"),
        Cause.LR_TOO_HIGH: Against("weights shrink"),
        Cause.GRADIENT_IMBALANCE: Against("weights shrink"),
        Cause.WARMUP_TOO_SHORT: Against("weights shrink"),
        Cause.MISSING_LOSS_SCALING: Against("weights shrink, and the gradients with them"),
        Cause.NO_LEARNABLE_SIGNAL: Against("weight decay shrinks the weights"),
    }
    quiet_steps: ClassVar[int] = 100
    guide: ClassVar[str] = "loss-not-falling"

    shrunk: float = 0.75
    high: float = 0.6
    soon_shrunk: float = 0.6
    gone: float = 0.5

    def init(self) -> WeightsShrinkState:
        """Before the first step."""
        return WeightsShrinkState()

    def step(self, state: WeightsShrinkState, look: Look) -> tuple[WeightsShrinkState, Sequence[Sighting]]:
        """Look at the weights where they were measured."""
        run = look.run
        norm = look.view.value("weight/norm")
        if not norm > 0:
            return state, ()
        if math.isnan(state.first):
            return WeightsShrinkState(norm, norm, 0, 1, run.step), ()
        fell = norm < state.now or norm < self.shrunk * state.first
        state = state._replace(now=norm, falls=state.falls + fell, looks=state.looks + 1)
        decay = look.views.latest("optimizer/weight_decay")
        if decay is not None and not (decay.values > 0).any():
            return state, ()
        if state.looks < 6 or norm > self.shrunk * state.first or state.falls < 0.8 * (state.looks - 1):
            return state, ()
        rest = left(run)
        bad = has_level(look) and run.num_losses > 100 and rest > self.high and not run.is_falling
        steps = run.step - state.first_step
        decayed = run.lr * float(decay.values.max()) * steps if decay is not None else 0.0
        if run.num_losses >= 40 and not run.came_trained:
            if not has_level(look):
                bad = norm < self.gone * state.first
            elif decayed > 1 and norm < self.soon_shrunk * state.first:
                bad = bad or rest > self.high
        message = f"the norm of all weights fell from {amount(state.first)} to {amount(norm)}" + (
            f", and the loss is at {share(rest)} of that of an untrained model" if math.isfinite(rest) else ""
        )
        evidence = (
            look.evidence("weight/norm", norm, state.first),
            look.evidence("loss", run.loss_smooth, run.loss_start),
        )
        severity = Severity.WARNING if bad else Severity.INFO
        return state, (Sighting(severity, message, evidence=evidence, since=state.first_step),)
