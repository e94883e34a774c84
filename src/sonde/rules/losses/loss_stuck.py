"""LOS004 loss-stuck."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import amount, count
from sonde.rules.history.block_means import Trend
from sonde.rules.history.level import has_level, untrained
from sonde.rules.history.most_fall import most_fall
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Onset, Severity, Sighting


class LossStuckState(NamedTuple):
    """The latest validation losses, and the size of a batch."""

    validations: tuple[float, ...] = ()
    batch: float = float("inf")


@dataclass(frozen=True, kw_only=True, slots=True)
class LossStuck:
    """The loss has never left its start.

    What it detects:
        - After at least `least_steps` losses, the last quarter of them is no more than `least_fall` below that of an
          untrained model. That is the first losses, or the entropy of the labels if it is lower.
        - The line through all losses falls by less than three standard errors, and the loss was never 20% below that
          level. This is information.
        - It is a warning from `warning_steps` losses on, and from `least_examples` examples on if the batch size is
          known.
        - It is no warning if validation has improved by `least_fall`.
        - It is no warning if the noise could hide a fall by more than `hidden`, unless the newer half of the losses is
          surely above the entropy of the labels, by 5% and three standard errors.
        - It is also a warning if the line falls by no more than a tenth, but only on the training examples: from
          `by_heart_steps` losses and `evaluations` evaluations on, if no evaluation was better by 1% than the first
          one, nor the first one better than an untrained model.

    Why it matters:
        Nothing is learned: gradients do not arrive, the learning rate is far off, or the labels do not depend on the
        inputs.

    Evidence:
        `loss` now, against its start. `grad/norm` tells causes apart by whether it is exactly zero, tiny or healthy; so
        does `update/ratio`.

    What to do:
        - Try to learn one batch by heart.
        - If that fails, look at the learning rate, at layers without gradients, and at the inputs of the loss.
        - If it works, check that labels belong to their inputs.

    When it is wrong:
        - Some tasks (copying, modular arithmetic) stay at the cost of guessing for long before they break through. The
          gradient norm mostly rises before that.
        - A fine-tuned model may have nothing left to learn.
        - Losses about zero and losses of several players are not judged.

    References:
        Zhang et al., Understanding deep learning requires rethinking generalization, ICLR 2017 (random labels).
    """

    code: ClassVar[str] = "LOS004"
    name: ClassVar[str] = "loss-stuck"
    onset: ClassVar[Onset] = Onset.BACKDATED
    needs: ClassVar[tuple[str, ...]] = ("loss",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.NO_LEARNABLE_SIGNAL: For("the loss stays at the cost of guessing"),
        Cause.BAD_INITIALISATION: For(),
        Cause.LR_TOO_LOW: For("the loss hardly leaves its start"),
        Cause.PLATEAU: For("the loss never moved"),
        Cause.VANISHING_GRADIENTS: For("the loss does not move"),
        Cause.WEIGHT_DECAY_TOO_STRONG: For("the loss stays at the cost of guessing"),
        Cause.WARMUP_TOO_SHORT: For(),
        Cause.UNDERFITTING: Against("nothing at all was learned"),
        Cause.INSUFFICIENT_CAPACITY: Against("even a small model does better than guessing"),
        Cause.LABEL_NOISE: Against("part of the labels would be learned"),
        Cause.MISSING_LR_DECAY: Against("the model never learned in the first place"),
        Cause.GAIN_DRIFT: Against("nothing was learned before it either"),
    }
    quiet_steps: ClassVar[int] = 50

    least_steps: int = 100
    warning_steps: int = 200
    least_fall: float = 0.03
    hidden: float = 0.1
    least_examples: int = 1000
    evaluations: int = 4
    by_heart_steps: int = 350

    def init(self) -> LossStuckState:
        """Before the first step."""
        return LossStuckState()

    def step(self, state: LossStuckState, look: Look) -> tuple[LossStuckState, Sequence[Sighting]]:
        """Look at one more loss."""
        run = look.run
        if "val/loss" in look.view and math.isfinite(run.val_loss):
            first = state.validations[:1] or (run.val_loss,)
            state = state._replace(validations=(*first, run.val_loss))
        if "loss" not in look.view:
            return state, ()
        if "batch/size" in look.view:
            state = state._replace(batch=look.view.value("batch/size"))
        if run.losses.num_values < self.least_steps or not has_level(look):
            return state, ()
        began, guess = run.losses.means[0], untrained(run)
        reference = guess if guess < began else began
        if run.loss_best < 0.8 * reference or run.came_trained or began < 0.7 * guess:
            return state, ()
        floor = (1 - self.least_fall) * reference
        trend = run.losses.trend()
        if trend is None:
            return state, ()
        if "val/loss" in look.view and self._is_by_heart(state, look, trend, reference):
            return state, (self._by_heart(state, look, trend),)
        if not run.loss_smooth > floor or trend.t < -3 or not trend.last > floor:
            return state, ()
        better = len(state.validations) > 1 and state.validations[-1] < (1 - self.least_fall) * state.validations[0]
        lasts = run.losses.num_values >= self.warning_steps and not better and not run.is_falling
        lasts = lasts and (most_fall(run.losses) < self.hidden * reference or _is_worse(state, look))
        # A few hundred examples teach little, however many steps they came in.
        lasts = lasts and not run.losses.num_values * state.batch < self.least_examples
        message = (
            f"after {count(run.losses.num_values, 'step')} the loss is {amount(trend.last)}, no better than that "
            f"of an untrained model ({amount(reference)})"
        )
        evidence = look.evidence("loss", trend.last, reference), *_norm(look)
        severity = Severity.WARNING if lasts else Severity.INFO
        return state, (Sighting(severity, message, evidence=evidence, since=0),)

    def _is_by_heart(self, state: LossStuckState, look: Look, trend: Trend, reference: float) -> bool:
        """Whether the loss falls a little, but not on other examples, where it never was better than at the start."""
        run, (first, *_) = look.run, state.validations
        long = run.losses.num_values >= self.by_heart_steps and run.num_evaluations >= self.evaluations
        never = run.val_best > 0.99 * first and first > (1 - self.least_fall) * reference
        return bool(long and never and trend.t < -3 and trend.last > 0.9 * reference)

    def _by_heart(self, state: LossStuckState, look: Look, trend: Trend) -> Sighting:
        run = look.run
        message = (
            f"the validation loss, {amount(run.val_loss)}, is no better than at first "
            f"({amount(state.validations[0])}), while the training loss fell a little, from {amount(trend.first)} to "
            f"{amount(trend.last)}"
        )
        evidence = (
            look.evidence("val/loss", run.val_loss, state.validations[0]),
            look.evidence("loss", trend.last, trend.first),
            *_norm(look),
        )
        return Sighting(Severity.WARNING, message, evidence=evidence, since=0)


def _is_worse(state: LossStuckState, look: Look) -> bool:
    """Whether the newer half of the losses is surely above what guessing gives."""
    guess, later = look.run.trivial, np.array(look.run.losses.means[len(look.run.losses.means) // 2 :])
    if not guess > 0 or not math.exp(guess) < 0.25 * state.batch < math.inf:
        return False
    return bool(later.mean() - 3 * later.std() / math.sqrt(len(later)) > 1.05 * guess)


def _norm(look: Look) -> tuple[Evidence, ...]:
    run = look.run
    if not math.isfinite(run.grad_norm):
        return ()
    return (look.evidence("grad/norm", run.grad_norm, run.grad_start),)
