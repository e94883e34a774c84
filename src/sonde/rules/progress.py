"""How badly a training does, as rules of gradients and layers ask it: strictly, so that healthy runs pass."""

from typing import NamedTuple

import numpy as np

from sonde.rules.picture import Picture

_JUDGED = 100  # losses: `Picture.improvement_z` needs as many


def is_stuck(picture: Picture) -> bool:
    """Whether the loss has hardly left its start, or what a predictor that ignores its input gets, and does not fall.

    Never before 100 losses, and never of losses that do not start above zero. A training that converged well below
    both is not stuck, whatever its gradients do.
    """
    if picture.num_losses < _JUDGED or picture.is_falling or not picture.loss_start > 0:
        return False
    return picture.loss_best > 0.8 * picture.loss_start or picture.loss_smooth > 0.9 * picture.trivial


def is_lost(picture: Picture) -> bool:
    """Whether the loss is infinite, or (after ten) half as large again as it began and twice what it once was.

    A NaN says nothing here: a step without a loss has one too.
    """
    if np.isinf(picture.loss):
        return True
    grown = picture.loss_start > 0 and picture.loss_smooth > 1.5 * picture.loss_start
    return bool(picture.num_losses >= 10 and grown and picture.loss_smooth > 2 * picture.loss_best)


def is_hurt(picture: Picture) -> bool:
    """Stuck or lost: what a symptom needs before it is more than information."""
    return is_stuck(picture) or is_lost(picture)


class DescentState(NamedTuple):
    """Smoothed losses at equal distances over the whole run, at most 32, and the distance."""

    losses: tuple[float, ...] = ()
    stride: int = 10


class Descent:
    """Tells a straight, shallow descent from one that slows down: what too small steps look like.

    Straightness is the fall over the newer half of the run over that over its older half: 1 a line, near 0 a curve that
    has settled. Its memory is 32 losses, of which every second one is forgotten when they are full.
    """

    def init(self) -> DescentState:
        """Before the first step."""
        return DescentState()

    def step(self, state: DescentState, picture: Picture) -> tuple[DescentState, float]:
        """The straightness after one more step, NaN below eight remembered losses or where nothing fell at first."""
        losses, stride = state
        if picture.num_losses and picture.num_losses % stride == 0 and np.isfinite(picture.loss_smooth):
            losses = (*losses, picture.loss_smooth)
            if len(losses) >= 32:
                losses, stride = losses[1::2], 2 * stride
        if len(losses) < 8:
            return DescentState(losses, stride), float("nan")
        kept = np.array(losses)
        middle = kept[len(kept) // 2]
        before, after = kept[0] - middle, middle - kept[-1]
        return DescentState(losses, stride), float(after / before) if before > 0 else float("nan")


def is_slow(picture: Picture, straightness: float, *, most: float = 0.5) -> bool:
    """Whether the loss falls, or creeps, along a shallow line: after 100 losses less than `most` of it is gone."""
    if picture.num_losses < _JUDGED or not picture.loss_start > 0:
        return False
    return bool(picture.loss_smooth > (1 - most) * picture.loss_start and straightness > 0.5)
