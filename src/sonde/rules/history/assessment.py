"""What a few epochs say of a run: how fast it improves, how wide the gap is, and whether it has stopped."""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple


class Assessment(NamedTuple):
    """Of the latest of several epochs.

    Attributes:
        improvement_rate: (v₋ − v)/|v₋| of the last two validation losses; NaN with fewer than two.
        gap: (v − t)/max(t, v₀/10): validation above training, relative to the latter, which counts as at least a tenth
            of the first validation loss, since a ratio to nothing means nothing.
        plateau: Whether the last three changes of validation were below 1% each.
        verdict: `overfitting`, `diverging`, `underfitting`, `plateau`, `slowing`, `healthy`, or `unknown` of fewer than
            two epochs.
        learning_rate: `too-low` where neither loss has moved by 1% since the first epoch, `too-high` where one is 10%
            above it, else `fine`; `unknown` with fewer than two.
        progress: Which band the last improvement is in: `poor` below 1%, `acceptable` up to 5%, `good` above; a
            converged run is poor too. `unknown` with fewer than two.
    """

    improvement_rate: float
    gap: float
    plateau: bool
    verdict: str
    learning_rate: str
    progress: str


def assess(
    val: Sequence[float],
    train: Sequence[float],
    *,
    first: tuple[float, float] | None = None,
    least_improvement: float = 0.01,
    widest_gap: float = 0.3,
    patience: int = 3,
    good_improvement: float = 0.05,
) -> Assessment:
    """The state of a run by its validation and training losses, one of each an epoch, oldest first.

    Overfitting: validation is above its best while training is below what it was then, and the gap is above
    `widest_gap`, or above zero and validation 10% up. Diverging: training is above its first, it or validation by
    10%. Underfitting: three epochs or more have brought less than a quarter of the first validation loss, the last one
    less than 5%, and the gap is below 10%. Slowing: the last improvement is below `least_improvement`; plateau:
    `patience` of them in a row. A wide gap alone is none: it says that training data are easier, not that more training
    does harm.

    Args:
        val: Validation losses.
        train: Training losses of the same epochs.
        first: Both losses of the first epoch of all, where earlier ones than these were forgotten.
        least_improvement: Relative; larger means sooner "slowing".
        widest_gap: Relative; larger means fewer "overfitting".
        patience: Epochs of a plateau.
        good_improvement: Relative; above it an epoch's progress is good. Larger means more that are acceptable.

    Raises:
        ValueError: There are not as many of one as of the other, or none.

    Example:
        >>> assess((3.6, 2.8, 2.6, 2.7), (3.5, 2.1, 1.2, 0.8)).verdict
        'overfitting'
        >>> assess((4.6, 4.4, 4.2, 4.1), (4.5, 4.2, 4.0, 3.9)).verdict
        'underfitting'
        >>> assessment = assess((3.5, 2.8, 2.7, 2.68), (3.2, 2.1, 2.0, 1.98))
        >>> assessment.verdict, round(assessment.improvement_rate, 4), assessment.progress, round(assessment.gap, 2)
        ('slowing', 0.0074, 'poor', 0.35)
    """
    if len(val) != len(train) or not val:
        raise ValueError(f"`assess(val, train)` needs as many of one as of the other, got {len(val)} and {len(train)}.")
    first_val, first_train = first or (val[0], train[0])
    gap = _share(val[-1] - train[-1], max(train[-1], 0.1 * abs(first_val)))
    if len(val) < 2:
        return Assessment(float("nan"), gap, False, "unknown", "unknown", "unknown")
    rates = [_share(before - after, abs(before)) for before, after in itertools.pairwise(val)]
    plateau = len(rates) >= patience and all(abs(rate) < least_improvement for rate in rates[-patience:])
    best = min(range(len(val)), key=val.__getitem__)
    rises, falls = val[-1] > val[best], train[-1] < train[best]
    too_high = (val[-1] > 1.1 * first_val and train[-1] > first_train) or train[-1] > 1.1 * first_train
    still = abs(val[-1] - first_val) < 0.01 * abs(first_val) and abs(train[-1] - first_train) < 0.01 * abs(first_train)
    if rises and falls and (gap > widest_gap or (gap > 0 and val[-1] > 1.1 * val[best])):
        verdict = "overfitting"
    elif too_high:
        verdict = "diverging"
    elif len(val) >= 3 and _share(first_val - val[-1], abs(first_val)) < 0.25 and rates[-1] < 0.05 and gap < 0.1:
        verdict = "underfitting"
    elif plateau:
        verdict = "plateau"
    else:
        verdict = "slowing" if rates[-1] < least_improvement else "healthy"
    learning_rate = "too-low" if still else "too-high" if too_high else "fine"
    progress = _band(rates[-1], least_improvement, good_improvement)
    return Assessment(rates[-1], gap, plateau, verdict, learning_rate, progress)


def _band(rate: float, least: float, good: float) -> str:
    if math.isnan(rate):
        return "unknown"
    return "poor" if rate < least else "acceptable" if rate <= good else "good"


def _share(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")
