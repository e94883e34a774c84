"""DAT006 no-learnable-signal."""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import amount
from sonde.rules.history.block_means import BlockMeans, line_through
from sonde.rules.history.level import has_level
from sonde.rules.history.most_fall import most_fall
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Onset, Severity, Sighting
from sonde.rules.sticky_fact import StickyFact, kept
from sonde.signals.phases import Phase

_SETTLED = 2
"""Looks after which a model has had time to find the targets' mean …"""
_FEWEST = 6
"""… and how many are judged at least."""
_MANY = 5
"""Evaluations."""
_BETTER = 0.05
"""Of what guessing costs; so much below it, validation has surely learned something."""


class NoLearnableSignalState(NamedTuple):
    """The entropy of the labels where preflight saw them, and for how many steps the loss has stood there."""

    labels: StickyFact = StickyFact()
    num_steps: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class NoLearnableSignal:
    """The loss stays at what guessing gives, although gradients arrive and weights move.

    What it detects:
        - If the cost of the best constant answer on the very same targets is known (`loss/relative`), the loss is
          judged as a share of that cost, from `soon` losses on and after the warmup of the learning rate. The share
          does not fall, and the mean of the later half of its measurements is below 1.3 and not surely (by two standard
          errors) below 1 − `near`.
        - Or the training loss is far below that cost (0.7 of it), and of `evaluations` validation losses or more none
          is: all that was learned was learned by heart.
        - Otherwise, after `warmup` losses and for `patience` steps in a row, the smoothed loss lies within `band` of
          the entropy of the labels; if that entropy is not known, the loss never fell more than 3·`band` below its
          start. From five evaluations on, the best validation loss is asked instead of the training loss, which may
          fall by a fifth: that is learned by heart.
        - The loss does not fall, neither over the last 100 losses nor along the line through all of them (three
          standard errors). A fall from above that entropy down to it does not count.
        - The training works: gradients are at least `least_gradient` of their start, weights move (update ratio above
          `least_ratio`, and all updates together make `least_way` of the weights' norm or more), and gradients of
          neighbouring steps do not agree (cosine below `most_cosine`).
        - The best validation loss is no better than guessing.
        - Warning: the noise could hide a fall by `hidden` at most. Information: it could hide more.

    Why it matters:
        As the loop hands them over, the labels have nothing to do with the inputs. No setting of the optimiser can
        help.

    Evidence:
        `loss/relative`, or `loss` against `label/entropy` or against its start; `grad/norm`, `update/ratio`,
        `val/loss`.

    What to do:
        - Look at some examples with their labels, as the loss gets them.
        - Look for labels that were shuffled by themselves or are off by one row, for a wrong column, and for padding
          that is not masked.

    When it is wrong:
        - The task may be hopeless for another reason: inputs without the information, a model that cannot represent the
          answer, or a rate so high that it killed all units at the start.
        - Some tasks (parities, grokking) stay at the level of guessing for very long before they are learned.

    References:
        Zhang et al., Understanding deep learning requires rethinking generalization, ICLR 2017 (random labels).
    """

    code: ClassVar[str] = "DAT006"
    name: ClassVar[str] = "no-learnable-signal"
    onset: ClassVar[Onset] = Onset.BACKDATED
    needs: ClassVar[tuple[str, ...]] = ("loss",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.NO_LEARNABLE_SIGNAL: For("the loss stays at guessing with healthy gradients"),
        Cause.LONG_SEQUENCE: For("nothing from far back in the sequence arrives"),
        Cause.UNDERFITTING: Against("training does not even beat guessing"),
        Cause.GAIN_DRIFT: Against("nothing was learned before the gains drifted"),
        Cause.LR_TOO_LOW: Against("weights and gradients move"),
        Cause.TRAIN_EVAL_MISMATCH: Against("training does no better than guessing by its own targets"),
    }
    quiet_steps: ClassVar[int] = 100

    band: float = 0.03
    patience: int = 50
    warmup: int = 150
    least_gradient: float = 0.02
    least_ratio: float = 1e-5
    least_way: float = 0.1
    most_cosine: float = 0.5
    hidden: float = 0.1
    soon: int = 100
    near: float = 0.02
    evaluations: int = 3

    def init(self) -> NoLearnableSignalState:
        """Before the first step."""
        return NoLearnableSignalState()

    def step(self, state: NoLearnableSignalState, look: Look) -> tuple[NoLearnableSignalState, Sequence[Sighting]]:
        """Look at one more loss."""
        run = look.run
        labels = kept(state.labels, look, "labels")
        if labels is not state.labels:
            state = state._replace(labels=labels)
        if run.shares.num_values:
            return self._by_shares(state, look)
        trivial = run.trivial if run.trivial > 0 else labels.value
        is_known = trivial > 0 and 0.2 * trivial < run.loss_start < 5 * trivial  # else another kind of loss
        floor = trivial * (1 - self.band) if is_known else run.loss_start * (1 - 3 * self.band)
        by_validation = run.num_evaluations >= _MANY
        stands = (
            run.num_losses >= self.warmup
            and has_level(look)
            and (run.loss_best > floor or (by_validation and run.loss_smooth > 0.8 * run.loss_start))
            and run.loss_smooth < 1.2 * (trivial if is_known else run.loss_start)
            and (by_validation or not run.is_falling)
            and not run.val_best < floor
            and self._works(look)
        )
        num = state.num_steps + 1 if stands else 0
        if num != state.num_steps:
            state = state._replace(num_steps=num)
        if num < self.patience:
            return state, ()
        trend = run.losses.trend()
        # A start above what ignoring the inputs gives comes down to it without any signal.
        from_above = is_known and trend is not None and trend.first > 1.01 * trivial
        if trend is not None and trend.t < -3 and not (from_above or by_validation):
            return state, ()
        is_sure = by_validation or most_fall(run.losses) < self.hidden * run.loss_start
        expected = trivial if is_known else run.loss_start
        word = "guessing" if is_known else "its start"
        return state, (self._sighting(look, word, expected, num, is_sure),)

    def _by_shares(
        self, state: NoLearnableSignalState, look: Look
    ) -> tuple[NoLearnableSignalState, Sequence[Sighting]]:
        """Look at what is left of the cost of guessing, by the targets themselves."""
        run = look.run
        if run.num_losses < self.soon or run.phase is Phase.WARMUP or not has_level(look):
            return state, ()
        if not self._works(look):
            return state, ()
        shares = _since_settled(run.shares)
        if len(shares.means) < _FEWEST:
            return state, ()
        mean, error = _level(shares.means[len(shares.means) // 2 :])
        slope, slope_error = line_through(shares.means)
        if run.val_best < (1 - _BETTER) * run.trivial:
            return state, ()
        by_heart = run.num_evaluations >= self.evaluations and run.val_best < 1.3 * run.trivial
        by_heart = by_heart and mean < 0.7
        stands = 1 - self.near - 2 * error < mean < 1.3 and slope >= -2 * slope_error and not run.is_falling
        if not (stands or by_heart):
            return state, ()
        is_sure = by_heart or mean - 2 * error > 1 - self.hidden
        what = "guessing"
        return state, (self._sighting(look, what, run.trivial, self.patience, is_sure),)

    def _works(self, look: Look) -> bool:
        """Whether gradients arrive and weights move, have come some way, and not all in one direction."""
        run = look.run
        return (
            run.grad_median > self.least_gradient * run.grad_start
            and not run.ratio < self.least_ratio
            and not run.travelled < self.least_way
            and not run.grad_cosine > self.most_cosine
        )

    def _sighting(self, look: Look, word: str, expected: float, num: int, is_sure: bool) -> Sighting:
        run = look.run
        message = (
            f"the loss of {amount(run.loss_smooth)} is not clearly better than {word} ({amount(expected)}), "
            "although gradients arrive and weights move"
        )
        evidence = [Evidence(tag="loss", step=run.step, value=run.loss_smooth, expected=expected)]
        if math.isfinite(run.grad_norm):
            evidence.append(Evidence(tag="grad/norm", step=run.step, value=run.grad_norm, expected=run.grad_start))
        since = max(0, run.step - num)
        severity = Severity.WARNING if is_sure else Severity.INFO
        return Sighting(severity, message, evidence=tuple(evidence), since=since)


@functools.lru_cache(maxsize=4)  # looks at shares are rarer than losses
def _level(shares: tuple[float, ...]) -> tuple[float, float]:
    """Their mean and its error."""
    later = np.array(shares)
    return float(later.mean()), float(later.std()) / math.sqrt(len(later))


def _since_settled(shares: BlockMeans) -> BlockMeans:
    """Without the first looks, and those at which the loss still came down to what guessing costs."""
    means = list(shares.means[-(-_SETTLED // shares.width) :])
    while means and means[0] > 1.05:
        del means[0]
    return BlockMeans(shares.width, tuple(means))
