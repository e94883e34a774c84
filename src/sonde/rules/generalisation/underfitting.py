"""GEN002 underfitting."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sonde.core.causes import Cause
from sonde.core.findings import Evidence, Severity
from sonde.rules.generalisation.evaluations import Evaluations
from sonde.rules.levels import has_level, untrained
from sonde.rules.rule import Look, Sighting


@dataclass(frozen=True, kw_only=True, slots=True)
class Underfitting:
    """Training and validation are both bad, and getting better slowly.

    What it detects:
        After `least` evaluations both losses are above `high` of what a model without training gets (guessing, the
        start or the first evaluation), validation is no more than 10% above training than it was at the first
        evaluation (some validation sets are harder than others), and none of the last three evaluations brought more
        than `slow`. It is information, and a warning from `warning` evaluations on, if there have been 100 steps.

        Or training is held back: after `least` evaluations and 200 steps the training loss is still above `held` of
        what a model without training gets, and above that of the evaluation *before* by 5% and three standard errors,
        which it was not at the first: the model that is evaluated is better than the one that is trained. Or it is
        above `high`, and 40% above validation, which stands still (medians of three evaluations, from `warning` on) at
        `stands` or more: training labels are worse than those of validation. Both are warnings.

    Why it matters:
        More of the same will not help: the model is too small or too much held back, the rate is too low, or there is
        nothing to learn.

    Evidence:
        `val/loss` and `loss` against what guessing gives, or against each other.

    What to do:
        Look at the rate first (LOS007), then less dropout and weight decay, then a larger model (one step: 512 → 768
        wide, 6 → 8 layers); try to learn one batch by heart. Held back: less dropout and augmentation, and a look at
        some training labels.

    When it is wrong:
        Hard tasks stay near the trivial loss although much is learned (next-token losses of small data, noisy targets).
        Evaluations a few steps apart are judged too early. Mixed or smoothed labels hold training back on purpose.

    References:
        Goodfellow, Bengio and Courville, Deep learning, 2016, section 5.2 and chapter 11.
    """

    code: ClassVar[str] = "GEN002"
    name: ClassVar[str] = "underfitting"
    needs: ClassVar[tuple[str, ...]] = ("loss", "val/loss")
    causes: ClassVar[tuple[Cause, ...]] = (
        Cause.UNDERFITTING,
        Cause.INSUFFICIENT_CAPACITY,
        Cause.LR_TOO_LOW,
        Cause.NO_LEARNABLE_SIGNAL,
        Cause.WEIGHT_DECAY_TOO_STRONG,
        Cause.VANISHING_GRADIENTS,
        Cause.SYMMETRIC_INITIALISATION,
        Cause.DEAD_UNITS,
        Cause.SATURATED_UNITS,
        Cause.LABEL_NOISE,
        Cause.PLATEAU,
        Cause.CLIP_TOO_AGGRESSIVE,
        Cause.SCHEDULE_DECAYS_TOO_FAST,
        Cause.SCHEDULE_MISAPPLIED,
        Cause.DOUBLE_SOFTMAX,
    )
    quiet_steps: ClassVar[int] = 10_000

    least: int = 4
    warning: int = 6
    high: float = 0.6
    slow: float = 0.1
    held: float = 0.75
    stands: float = 0.4

    def init(self) -> Evaluations:
        """Before the first step."""
        return Evaluations()

    def step(self, state: Evaluations, look: Look) -> tuple[Evaluations, Sequence[Sighting]]:
        """Look at one more step."""
        before = state.num
        state = state.noted(look.scene)
        if state.num == before or state.num < self.least or not has_level(look):
            return state, ()
        held = self._held_back(state, look)
        if held is not None:
            return state, (held,)
        # The first losses of a log with a row an epoch are those of whole epochs: its first validation is higher.
        reference = float(np.fmax(untrained(look.picture), state.first))
        if not look.picture.trivial > 0:
            reference = float(np.fmax(reference, state.start))
        validation, training = state.validations[-1], state.trainings[-1]
        widest = 1.1 * min(max(1.0, state.first / state.first_training), 1.25) * training
        if not (min(validation, training) > self.high * reference and validation < widest):
            return state, ()
        last = state.validations[-4:]
        rates = [(a - b) / a if a > 0 else 0.0 for a, b in itertools.pairwise(last)]
        if max(rates) > self.slow:
            return state, ()
        message = (
            f"validation {validation:.4g} and training loss {training:.4g} are both {validation / reference:.0%} and "
            f"{training / reference:.0%} of what it is without training, after {state.num} evaluations"
        )
        evidence = (
            Evidence(tag="val/loss", step=look.scene.step, value=validation, expected=reference),
            Evidence(tag="loss", step=look.scene.step, value=training, expected=reference),
        )
        severity = Severity.WARNING if state.num >= self.warning and look.picture.num_losses > 100 else Severity.INFO
        return state, (Sighting(severity, message, evidence=evidence, since=state.steps[0]),)

    def _held_back(self, state: Evaluations, look: Look) -> Sighting | None:
        """Training that stays above what validation was before it, although it has fallen since."""
        picture = look.picture
        before, training, reference = state.validations[-2], state.trainings[-1], untrained(picture)
        error = picture.loss_scale / math.sqrt(min(state.steps[-1] - state.steps[-2], 50))
        if not (picture.num_losses >= 200 and training > before + 3 * error):
            return None
        late = training > max(self.held * reference, before / 0.95) and state.first > 0.95 * state.first_training
        if not (late or self._stands(state, reference)):
            return None
        message = (
            f"training loss {training:.4g}, {training / reference:.0%} of what it is without training, stays above the "
            f"validation loss of the evaluation before ({before:.4g}): what holds training back is not there"
        )
        evidence = (
            Evidence(tag="loss", step=look.scene.step, value=training, expected=before),
            Evidence(tag="val/loss", step=state.steps[-2], value=before, expected=reference),
        )
        return Sighting(Severity.WARNING, message, evidence=evidence, since=state.steps[0])

    def _stands(self, state: Evaluations, reference: float) -> bool:
        """Whether validation stands still on a high level, and training far above it."""
        if len(state.validations) < max(self.warning, 6):
            return False
        older, newer = float(np.median(state.validations[-6:-3])), float(np.median(state.validations[-3:]))
        stands = newer > max(0.97 * older, self.stands * reference)
        return stands and state.trainings[-1] > max(self.high * reference, 1.4 * newer)
