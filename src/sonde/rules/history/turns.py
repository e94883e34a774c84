"""Where validation turned up while training went on falling."""

from typing import NamedTuple

import numpy as np

from sonde.rules.history.evaluations import Evaluations

_FEW = 8  # evaluations up to which a course is judged by eye


class Turn(NamedTuple):
    """Validation and training at the best evaluation and now."""

    step: int
    best: float
    best_training: float
    now: float
    training: float

    def gap(self, first: float) -> float:
        """Relative to the training loss, which counts as at least a tenth of the first validation loss."""
        return (self.now - self.training) / max(self.training, 0.1 * first) if first > 0 else float("nan")


def clear_turn(evaluations: Evaluations, reference: float, least_rise: float) -> Turn | None:
    """The turn that four to eight evaluations show to the eye, too few as they are for a test against their noise.

    Training fell at every one, and by 15% since validation was best. Validation fell down to its best, where it was
    more than half above training, and rose again by `least_rise`, at no evaluation by more than it had fallen into the
    best: a curve turns, a bad evaluation leaps. The gap was below 30% at first and widened every time: one that was
    there from the start has other causes.

    Args:
        evaluations: All of them.
        reference: Loss of a model without training.
        least_rise: Of the best validation loss, and of the reference; larger means fewer turns.
    """
    validations, trainings = np.array(evaluations.validations), np.array(evaluations.trainings)
    if not 4 <= evaluations.num <= _FEW or not evaluations.first > 0 or not trainings[-1] > 0:
        return None
    place = int(validations.argmin())
    if not 0 < place < len(validations) - 1:
        return None
    gaps = (validations - trainings) / np.maximum(trainings, 0.1 * evaluations.first)
    falls = (np.diff(trainings) < 0).all() and (np.diff(validations[: place + 1]) < 0).all()
    widens = gaps[0] < 0.3 and gaps[place] > 0.5 and (np.diff(gaps) > 0).all()
    leaps = np.diff(validations[place:]).max() > validations[place - 1] - validations[place]
    rise = validations[-1] - validations[place]
    if not (falls and widens and rise > least_rise * max(validations[place], reference)) or leaps:
        return None
    if not trainings[-1] < 0.85 * trainings[place]:
        return None
    numbers = validations[place], trainings[place], validations[-1], trainings[-1]
    return Turn(evaluations.steps[place], *map(float, numbers))
