"""How badly a training does, as rules of gradients and layers ask it: strictly, so that healthy runs pass."""

import math

from sonde.rules.picture import Picture

_JUDGED = 100  # losses: `Picture.improvement_z` needs as many


def is_stuck(picture: Picture, *, soon: bool = False) -> bool:
    """Whether the loss has hardly left its start, or what a predictor that ignores its input gets, and does not fall.

    Never before 100 losses, and never of losses that do not start above zero or are no measure (`Picture.is_measure`),
    of several optimisers, of a model that came trained, or where the noise of 100 losses would hide a fall by a fifth
    (two standard errors of a line). A training that converged well below both is not stuck, whatever its gradients do.

    Args:
        picture: The whole.
        soon: With a symptom that is beyond doubt, from 40 losses on where no more than 3% can have gone since the
            eighth.
    """
    if not picture.loss_start > 0 or not picture.is_alone or not picture.is_measure or picture.came_trained:
        return False
    if picture.num_losses < _JUDGED:
        if not (soon and picture.most_gone < 0.03):
            return False
    # One deviation: who claims that it stands does not need the fall to be sure.
    elif picture.improvement_z > 1 or 2 * math.sqrt(12 / _JUDGED) * picture.loss_scale > 0.2 * picture.loss_smooth:
        return False
    return picture.loss_best > 0.8 * picture.loss_start or picture.loss_smooth > 0.9 * picture.trivial


def is_lost(picture: Picture) -> bool:
    """Whether the loss is infinite, or (after ten) half as large again as it began and twice what it once was.

    Three times as large as it began while its noise is not known (below 20 losses), and by a deviation after that.
    Smoothed, and above its start unsmoothed too: one huge loss stays in the average for long. Only where steps, weights
    or gradients can account for it (`Picture.is_upset`): a loss may be raised by its data. Of several optimisers only
    an infinite one is lost. A NaN says nothing here: a step without a loss has one too.
    """
    if math.isinf(picture.loss):
        return True
    start = picture.loss_start
    if picture.num_losses < 10 or not picture.is_alone or not 0 < start < picture.loss:
        return False
    # Ten or twenty noisy losses can be half as large again by chance.
    grown = 3 * start if math.isnan(picture.loss_scale) else max(1.5 * start, start + picture.loss_scale)
    return picture.loss_smooth > max(grown, 2 * picture.loss_best) and picture.is_upset


def is_hurt(picture: Picture, *, soon: bool = False) -> bool:
    """Stuck (`soon` as there) or lost: what a symptom needs before it is more than information."""
    return is_stuck(picture, soon=soon) or is_lost(picture)


def is_slow(picture: Picture, *, most: float = 0.5) -> bool:
    """Whether the loss falls, or creeps, along a shallow line: after 100 losses less than `most` of it is gone.

    Nor is it slow where it would be gone in 500 steps at its pace so far.
    """
    if picture.num_losses < _JUDGED or not picture.is_alone or not picture.is_measure or not picture.loss_start > 0:
        return False
    if 500 * picture.progress > picture.num_losses:
        return False
    return picture.loss_smooth > (1 - most) * picture.loss_start and picture.descent.straightness > 0.5
