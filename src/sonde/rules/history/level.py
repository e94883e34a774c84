"""Where a loss stands between what is free and what is perfect."""

from sonde.rules.history.run_summary import RunSummary
from sonde.rules.rule import Look


def untrained(run: RunSummary) -> float:
    """What a model that has learned nothing gets: the trivial predictor where it is known, else the start of the run.

    A run that starts at more than twice the trivial loss has other units (a sum, further terms) or a bad start, and is
    held against its start. NaN where losses are not positive at the start: nothing is known then of where zero is.
    """
    if not run.loss_start > 0:
        return float("nan")
    return run.trivial if 0 < run.loss_start < 2 * run.trivial else run.loss_start


def left(run: RunSummary) -> float:
    """The share of `untrained` that is left: 1 where nothing was learned, 0 where all is; NaN where it is unknown."""
    return run.loss_smooth / untrained(run)


def has_level(look: Look) -> bool:
    """Whether the loss measures progress at all: positive, of one player, and never at or below zero when smoothed.

    Policy gradients wander about zero, and the losses of players of a game (several optimisers, each with a norm of its
    own) rise and fall with each other: of those a level says nothing. Nor does it of a loss that once rose by something
    else than the optimiser's steps (`RunSummary.is_measure`).
    """
    run = look.run
    return run.loss_start > 0 and run.loss_best > 0 and run.is_alone and run.is_measure
