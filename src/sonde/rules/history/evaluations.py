"""Validation losses, each with the training loss of its time."""

import math
from typing import NamedTuple

import numpy as np

from sonde.rules.step_view import StepView

_MOST = 32
_MOST_LOSSES = 50


class Evaluations(NamedTuple):
    """The last 32 evaluations, oldest first, and the losses of the very first one.

    The training loss of an evaluation is the mean of the last 50 losses since the evaluation before. Evaluations that
    are not finite, or come before any training loss, are left out.
    """

    validations: tuple[float, ...] = ()
    trainings: tuple[float, ...] = ()
    steps: tuple[int, ...] = ()
    first: float = float("nan")
    num: int = 0
    losses: tuple[float, ...] = ()
    first_training: float = float("nan")
    starts: tuple[float, ...] = ()
    """The first two training losses of all."""

    def noted(self, view: StepView) -> "Evaluations":
        """With what this step brought."""
        return self.taken(view.step, view.value("loss"), view.value("val/loss"))

    def taken(self, step: int, loss: float, validation: float) -> "Evaluations":
        """With a training loss and a validation loss, NaN where there is none."""
        new = self
        if math.isfinite(loss):
            starts = self.starts if len(self.starts) == 2 else (*self.starts, loss)
            losses = (*self.losses, loss)[-_MOST_LOSSES:]
            new = Evaluations(*self[:5], losses, self.first_training, starts)
        if not math.isfinite(validation) or not new.losses:
            return new
        training = float(np.mean(new.losses))
        return Evaluations(
            (*self.validations, validation)[-_MOST:],
            (*self.trainings, training)[-_MOST:],
            (*self.steps, step)[-_MOST:],
            validation if self.num == 0 else self.first,
            self.num + 1,
            (),
            training if self.num == 0 else self.first_training,
            new.starts,
        )

    @property
    def start(self) -> float:
        """The smaller one of the first two training losses; NaN before.

        Full batches and large rates can halve the loss within a few steps, before any median of the first ones settles;
        of two, the smaller is no outlier.
        """
        return min(self.starts, default=float("nan"))

    @property
    def noise(self) -> float:
        """Standard deviation of a validation loss about its own course; NaN below five."""
        return self.noise_since(0)

    def noise_since(self, place: int) -> float:
        """The same of the evaluations from a place on.

        By second differences x₋ − 2x + x₊, which a line leaves at zero and noise of variance σ² at 6σ². Medians of so
        few are too often far too small.
        """
        if len(self.validations) - place < 5:
            return float("nan")
        bends = np.diff(np.array(self.validations[place:]), 2)
        return math.sqrt(float(np.mean(bends**2)) / 6)
