"""GEN002 underfitting."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sonde.core.quantities import amount, count
from sonde.core.quantities import share as percent
from sonde.rules.history.evaluations import Evaluations
from sonde.rules.history.level import has_level, untrained
from sonde.rules.layer_depth import latest_typical
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Onset, Severity, Sighting, When
from sonde.signals.phases import Phase

_CRAWLING = {7: 0.8, 8: 0.8, 9: 1.0, 10: 1.0}
"""By evaluations, what newer falls must be of older ones: those of a logarithm are 0.5 at seven, 0.65 at ten."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Underfitting:
    """The training and the validation loss are both high, and fall slowly.

    What it detects:
        - After `least` evaluations both losses are above `high` of an untrained model's loss (the cost of guessing, the
          first losses or the first validation loss).
        - The validation loss is at most 10% farther above the training loss than it was at the first evaluation. Some
          validation sets are harder than others.
        - None of the last three evaluations improved by more than `slow`.
        - If validation crawls, both losses need only be above `left`. It is judged at the seventh to tenth evaluation:
          each of the last five evaluations brought between −2% and 5%, all together over 100 steps or more 3% to 20%,
          and the last two about as much as the first two. The learning rate is constant and near its peak, and the fall
          before the first evaluation was more than twice as large.
        - Warning: from `warning` evaluations and 100 steps on.
        - Information instead: validation has settled, which means that it came down ever more slowly to a level below
          `settled` of an untrained model's loss and keeps it within 2%.
        - Information instead: the model came trained. If the cost of guessing is not known, a fifth of the loss that
          went by steps below 5e-4 of the weights, as in fine-tuning, counts as such.
        - Information instead: the cost of guessing is not known, 30% of the loss is gone, and each of the last three
          evaluations brought 1.5%.

    Why it matters:
        More steps of the same kind will not help. The model is too small or held back too much, the learning rate is
        too low, or there is nothing to learn.

    Evidence:
        `val/loss` and `loss` against the cost of guessing.

    What to do:
        - Look at the learning rate first (LOS007).
        - Use less dropout and weight decay.
        - Use a larger model: half as wide again, or a third more layers.
        - Try to learn one batch by heart.

    When it is wrong:
        - Hard tasks stay near the cost of guessing although much is learned, as language models of few data do.
        - A model that is too small and a task with noisy targets both settle on a high level. They look the same, so
          the finding stays information.
        - Evaluations a few steps apart are judged too early.

    References:
        Goodfellow, Bengio and Courville, Deep learning, 2016, section 5.2 and chapter 11.
    """

    code: ClassVar[str] = "GEN002"
    name: ClassVar[str] = "underfitting"
    onset: ClassVar[Onset] = Onset.BACKDATED
    needs: ClassVar[tuple[str, ...]] = ("loss", "val/loss")
    reads: ClassVar[tuple[str, ...]] = ("val/loss",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.UNDERFITTING: (For("both losses are high and fall slowly"), For(when=When.ALARM)),
        Cause.INSUFFICIENT_CAPACITY: For("both losses are high and fall slowly"),
        Cause.LABEL_NOISE: For("part of the labels cannot be learned"),
        Cause.BATCH_TOO_LARGE: For("too few steps to get far"),
        Cause.LONG_SEQUENCE: For(),
        Cause.WEIGHT_DECAY_TOO_STRONG: For("both losses are high"),
        Cause.NO_LEARNABLE_SIGNAL: Against("validation is at guessing too"),
        Cause.OVERFITTING: Against("training itself has not come far"),
        Cause.PLATEAU: Against("the loss never came down far"),
    }
    quiet_steps: ClassVar[int] = 10_000
    guide: ClassVar[str] = "loss-not-falling"

    least: int = 4
    warning: int = 6
    high: float = 0.6
    slow: float = 0.1
    settled: float = 0.84
    left: float = 0.42

    def init(self) -> int:
        """Before the first evaluation."""
        return 0

    def step(self, num: int, look: Look) -> tuple[int, Sequence[Sighting]]:
        """Look at one more evaluation."""
        state = look.run.evaluations
        if state.num == num or state.num < self.least or not has_level(look):
            return state.num, ()
        # The first losses of a log with a row an epoch are those of whole epochs: its first validation is higher.
        reference = float(np.fmax(untrained(look.run), state.first))
        if not look.run.trivial > 0:
            reference = float(np.fmax(reference, state.start))
        validation, training = state.validations[-1], state.trainings[-1]
        widest = 1.1 * min(max(1.0, state.first / state.first_training), 1.25) * training
        constant = look.run.phase not in (Phase.WARMUP, Phase.DECAY) and not look.run.lr < 0.9 * look.run.lr_peak
        fast = reference - state.first > 2 * (state.first - validation)  # a line from start to end is LOS007's
        crawls = constant and fast and _crawls(state)
        least = (self.left if crawls else self.high) * reference
        if not (min(validation, training) > least and validation < widest):
            return state.num, ()
        last = state.validations[-4:]
        rates = [(a - b) / a if a > 0 else 0.0 for a, b in itertools.pairwise(last)]
        if max(rates) > self.slow:
            return state.num, ()
        message = (
            f"after {count(state.num, 'evaluation')} both losses are still high: validation {amount(validation)} "
            f"({percent(validation / reference)} of an untrained model's), training {amount(training)} "
            f"({percent(training / reference)})"
        )
        evidence = (
            Evidence(tag="val/loss", step=look.view.step, value=validation, expected=reference),
            Evidence(tag="loss", step=look.view.step, value=training, expected=reference),
        )
        lasts = state.num >= self.warning and look.run.num_losses > 100
        settled = not crawls and validation < self.settled * reference and _has_settled(state, reference)
        # Of a loss whose floor is not known (the likelihood of a generative model) a third may be all there is.
        unknown = not look.run.trivial > 0
        gets_on = unknown and not crawls and validation < 0.7 * reference and min(rates) > 0.015
        high = lasts and not (settled or gets_on) and not _may_be_tuned(look)
        severity = Severity.WARNING if high else Severity.INFO
        return state.num, (Sighting(severity, message, evidence=evidence, since=state.steps[0]),)


def _crawls(state: Evaluations) -> bool:
    """Whether validation falls slowly, and does not slow down as learning curves do."""
    if state.num not in _CRAWLING or not min(state.validations) > 0 or state.steps[-1] - state.steps[-6] < 100:
        return False
    last = np.array(state.validations[-6:])
    falls = -np.diff(last)
    rates = falls / last[:-1]
    whole = (last[0] - last[-1]) / last[0]
    steady = falls[-2:].sum() > _CRAWLING[state.num] * falls[:2].sum()
    return bool(rates.min() > -0.02 and rates.max() < 0.05 and 0.03 < whole < 0.2 and steady)


def _has_settled(state: Evaluations, reference: float) -> bool:
    """Whether both losses came down ever more slowly to a level that they keep.

    A model that is too small ends so, and as well any model on a task whose targets are partly chance: most are. Labels
    that are wrong in training only leave training above validation, and that is no such end.
    """
    blocks = np.array([reference, *state.validations])
    falls = -np.diff(blocks)
    slows = falls[-2:].mean() < 0.5 * falls[:2].mean()
    still = abs(falls[-1]) < 0.02 * blocks[-2]
    return bool(slows and still and state.trainings[-1] < 1.15 * state.validations[-1])


def _may_be_tuned(look: Look) -> bool:
    """Whether it may be that the model came trained: then its start is not what it is without training."""
    run = look.run
    if run.trivial > 0 or math.isfinite(run.log_z):
        return run.came_trained
    return run.progress > 0.2 and latest_typical(look.views, "update/ratio") < 5e-4
