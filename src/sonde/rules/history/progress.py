"""How badly a training does, as rules of gradients and layers ask it: strictly, so that healthy runs pass."""

import math

from sonde.rules.history.run_summary import RunSummary

_JUDGED = 100  # losses: `RunSummary.improvement_z` needs as many


def is_stuck(run: RunSummary, *, soon: bool = False) -> bool:
    """Whether the loss has hardly left its start, or what a predictor that ignores its input gets, and does not fall.

    Never before 100 losses, and never of losses that do not start above zero or are no measure
    (`RunSummary.is_measure`), of several optimisers, of a model that came trained, or where the noise of 100 losses
    would hide a fall by a fifth (two standard errors of a line). A training that converged well below both is not
    stuck, whatever its gradients do.

    Args:
        run: What is known of it.
        soon: With a symptom that is beyond doubt, from 40 losses on where no more than 3% can have gone since the
            eighth.
    """
    if not run.loss_start > 0 or not run.is_alone or not run.is_measure or run.came_trained:
        return False
    if run.num_losses < _JUDGED:
        if not (soon and run.most_gone < 0.03):
            return False
    # One deviation: who claims that it stands does not need the fall to be sure.
    elif run.improvement_z > 1 or 2 * math.sqrt(12 / _JUDGED) * run.loss_scale > 0.2 * run.loss_smooth:
        return False
    return run.loss_best > 0.8 * run.loss_start or run.loss_smooth > 0.9 * run.trivial


def is_lost(run: RunSummary) -> bool:
    """Whether the loss is infinite, or (after ten) half as large again as it began and twice what it once was.

    Three times as large as it began while its noise is not known (below 20 losses), and by a deviation after that.
    Smoothed, and above its start unsmoothed too: one huge loss stays in the average for long. Only where steps, weights
    or gradients can account for it (`RunSummary.is_upset`): a loss may be raised by its data. Of several optimisers
    only an infinite one is lost. A NaN says nothing here: a step without a loss has one too.
    """
    if math.isinf(run.loss):
        return True
    start = run.loss_start
    if run.num_losses < 10 or not run.is_alone or not 0 < start < run.loss:
        return False
    # Ten or twenty noisy losses can be half as large again by chance.
    grown = 3 * start if math.isnan(run.loss_scale) else max(1.5 * start, start + run.loss_scale)
    return run.loss_smooth > max(grown, 2 * run.loss_best) and run.is_upset


def is_hurt(run: RunSummary, *, soon: bool = False) -> bool:
    """Stuck (`soon` as there) or lost: what a symptom needs before it is more than information."""
    return is_stuck(run, soon=soon) or is_lost(run)


def is_slow(run: RunSummary, *, most: float = 0.5) -> bool:
    """Whether the loss falls, or creeps, along a shallow line: after 100 losses less than `most` of it is gone.

    Nor is it slow where it would be gone in 500 steps at its pace so far.
    """
    if run.num_losses < _JUDGED or not run.is_alone or not run.is_measure or not run.loss_start > 0:
        return False
    if 500 * run.progress > run.num_losses:
        return False
    return run.loss_smooth > (1 - most) * run.loss_start and run.descent.straightness > 0.5
