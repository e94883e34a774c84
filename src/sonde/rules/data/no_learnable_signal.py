"""DAT006 no-learnable-signal."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.causes import Cause
from sonde.core.findings import Evidence, Severity
from sonde.rules.course import Course
from sonde.rules.falls import most_fall
from sonde.rules.levels import has_level
from sonde.rules.rule import Look, Sighting
from sonde.rules.standing import Standing, stand

_SETTLED = 20  # losses after which a model has had time to find the targets' mean


class Squares(NamedTuple):
    """How the loss goes with the mean square of the very same targets about their mean: sums over the run's steps."""

    num: int = 0
    mean: float = 0.0
    """Of all targets so far."""
    losses: float = 0.0
    squares: float = 0.0
    products: float = 0.0
    squared_losses: float = 0.0
    squared_squares: float = 0.0

    def taken(self, loss: float, mean: float, std: float) -> tuple["Squares", float]:
        """With one more step, and the loss over that step's mean square; NaN where either is missing."""
        if not (math.isfinite(loss) and math.isfinite(mean) and std > 0):
            return self, float("nan")
        num = self.num + 1
        centre = self.mean + (mean - self.mean) / num
        square = std**2 + (mean - centre) ** 2
        new = self._replace(num=num, mean=centre)
        if num > _SETTLED:
            new = Squares(
                num,
                centre,
                self.losses + loss,
                self.squares + square,
                self.products + loss * square,
                self.squared_losses + loss**2,
                self.squared_squares + square**2,
            )
        return new, loss / square

    @property
    def correlation(self) -> float:
        """Of the two; NaN where one of them does not vary."""
        num = max(self.num - _SETTLED, 1)
        ours = self.squared_losses - self.losses**2 / num
        theirs = self.squared_squares - self.squares**2 / num
        if not (ours > 0 and theirs > 0):
            return float("nan")
        return (self.products - self.losses * self.squares / num) / math.sqrt(ours * theirs)


class NoLearnableSignalState(NamedTuple):
    """The entropy of the labels where preflight saw them, for how many steps the loss has stood there, all losses."""

    labels: Standing = Standing()
    num_steps: int = 0
    course: Course = Course()
    squares: Squares = Squares()
    shares: Course = Course()
    """Of losses over the mean squares of their own targets."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NoLearnableSignal:
    """The loss stays where a predictor that ignores its input gets, although the training works.

    What it detects:
        For `patience` steps in a row, after `warmup` losses: the smoothed loss lies within `band` of the entropy of the
        labels, or never fell more than 3·`band` below its start where that entropy is not known; it does not fall,
        neither over the last 100 losses nor along the line through all of them (three standard errors; a fall from
        above that entropy down to it does not count); the gradient has not vanished (at least `least_gradient` of its
        start); weights move (update ratio above `least_ratio`); gradients of neighbouring steps do not agree (cosine
        below `most_cosine`, where measured); and the best validation loss is no better. Information as long as the
        noise could hide a fall by more than `hidden` (two standard errors of the line), then a warning.

        Targets that are numbers tell it through the noise of their batches. The mean square of a batch's targets about
        the mean of all is what ignoring the inputs costs on that very batch: where the loss follows it from step to
        step (correlation above `follows`), the loss over it is judged instead, against 1.

    Why it matters:
        The labels have nothing to do with the inputs, as the loop hands them over: no setting of the optimiser can
        help.

    Evidence:
        `loss` against `label/entropy` or `label/std` (or its start), `grad/norm`, `update/ratio`, `val/loss`.

    What to do:
        Look at some examples with their labels as the loss gets them: shuffled by themselves, off by one row, the wrong
        column, padding that is not masked.

    When it is wrong:
        Tasks that are hopeless for another reason: inputs without the information, a model that cannot represent it, a
        rate far too high that kills all units at the start. Some tasks (parities, grokking) stay at chance for very
        long and then are learned.

    References:
        Zhang et al., Understanding deep learning requires rethinking generalization, ICLR 2017 (random labels).
    """

    code: ClassVar[str] = "DAT006"
    name: ClassVar[str] = "no-learnable-signal"
    needs: ClassVar[tuple[str, ...]] = ("loss",)
    causes: ClassVar[tuple[Cause, ...]] = (Cause.NO_LEARNABLE_SIGNAL, Cause.LABEL_NOISE)
    quiet_steps: ClassVar[int] = 100

    band: float = 0.03
    patience: int = 50
    warmup: int = 150
    least_gradient: float = 0.02
    least_ratio: float = 1e-5
    most_cosine: float = 0.5
    hidden: float = 0.1
    follows: float = 0.95

    def init(self) -> NoLearnableSignalState:
        """Before the first step."""
        return NoLearnableSignalState()

    def step(self, state: NoLearnableSignalState, look: Look) -> tuple[NoLearnableSignalState, Sequence[Sighting]]:
        """Look at one more loss."""
        picture = look.picture
        labels = stand(state.labels, look, "labels")
        squares, share = state.squares.taken(
            picture.loss, look.scene.value("label/mean"), look.scene.value("label/std")
        )
        shares = state.shares.extended(share) if squares.num > _SETTLED else state.shares
        state = state._replace(labels=labels, squares=squares, shares=shares)
        if squares.num > 4 * _SETTLED and squares.correlation > self.follows:
            return self._of_numbers(state, look)
        trivial = picture.trivial if picture.trivial > 0 else labels.value
        is_known = trivial > 0 and 0.2 * trivial < picture.loss_start < 5 * trivial  # else another kind of loss
        floor = trivial * (1 - self.band) if is_known else picture.loss_start * (1 - 3 * self.band)
        stands = (
            picture.num_losses >= self.warmup
            and has_level(look)
            and picture.loss_best > floor
            and picture.loss_smooth < 1.2 * (trivial if is_known else picture.loss_start)
            and not picture.is_falling
            and not picture.val_best < floor
            and self._works(look)
        )
        num = state.num_steps + 1 if stands else 0
        state = state._replace(num_steps=num, course=state.course.extended(picture.loss))
        if num < self.patience:
            return state, ()
        descent = state.course.descent()
        # A start above what ignoring the inputs gives comes down to it without any signal.
        from_above = is_known and descent is not None and descent.first > 1.01 * trivial
        if descent is not None and descent.t < -3 and not from_above:
            return state, ()
        is_sure = most_fall(state.course) < self.hidden * picture.loss_start
        expected = trivial if is_known else picture.loss_start
        word = "what ignoring the inputs gives" if is_known else "its start"
        return state, (self._sighting(look, word, expected, num, is_sure),)

    def _of_numbers(
        self, state: NoLearnableSignalState, look: Look
    ) -> tuple[NoLearnableSignalState, Sequence[Sighting]]:
        """Look at losses that follow the mean squares of their own targets."""
        picture, shares = look.picture, state.shares
        state = state._replace(course=state.course.extended(picture.loss))
        level = state.squares.squares / (state.squares.num - _SETTLED)
        descent = shares.descent()
        if descent is None or not (picture.num_losses >= self.warmup and has_level(look) and self._works(look)):
            return state._replace(num_steps=0), ()
        falls = descent.t < -3 and not descent.first > 1 + self.band
        stands = 1 - self.band < descent.last < 1.2 and not falls and not picture.val_best < (1 - self.band) * level
        num = state.num_steps + 1 if stands else 0
        state = state._replace(num_steps=num)
        if num < self.patience:
            return state, ()
        is_sure = most_fall(shares) < self.hidden
        return state, (self._sighting(look, "what ignoring the inputs gives", level, num, is_sure),)

    def _works(self, look: Look) -> bool:
        """Whether gradients arrive and weights move, and not all in one direction."""
        picture = look.picture
        return (
            picture.grad_median > self.least_gradient * picture.grad_start
            and not picture.ratio < self.least_ratio
            and not picture.grad_cosine > self.most_cosine
        )

    def _sighting(self, look: Look, word: str, expected: float, num: int, is_sure: bool) -> Sighting:
        picture = look.picture
        message = (
            f"loss {picture.loss_smooth:.4g} has not left {word} ({expected:.4g}), though weights and gradients move"
        )
        evidence = [Evidence(tag="loss", step=picture.step, value=picture.loss_smooth, expected=expected)]
        if math.isfinite(picture.grad_norm):
            evidence.append(
                Evidence(tag="grad/norm", step=picture.step, value=picture.grad_norm, expected=picture.grad_start)
            )
        since = max(0, picture.step - num)
        severity = Severity.WARNING if is_sure else Severity.INFO
        return Sighting(severity, message, evidence=tuple(evidence), since=since)
