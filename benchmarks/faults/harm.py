"""When a fault begins to do harm: where a run is worse than its repaired twin, which had the same data and seed.

A fault may be there from the first step on and show much later: nothing is overfitted at the beginning, a rate that is
never lowered is right for a long time. Before the first harm there is nothing to find in the loss.
"""

import numpy as np

import sonde
from sonde.core.records import Float64, Int64

_WINDOW = 10
_DEVIATIONS = 3.0
_IN_A_ROW = 3
_WORSE = 0.05  # of the twin's validation loss


def first_harm(run: sonde.Run, twin: sonde.Run) -> int | None:
    """The step from which on a run is worse than its twin, by the loss or the validation loss; None where it never is.

    By the loss: means over 10 steps, three in a row, each more than 3 standard errors above the twin's. By the
    validation loss: two evaluations in a row more than 5% above the twin's. A loss that is not finite is worse.
    """
    found = [_of_losses(*_common(run, twin, "loss")), _of_evaluations(*_common(run, twin, "val/loss"))]
    return min((step for step in found if step is not None), default=None)


def _common(run: sonde.Run, twin: sonde.Run, tag: str) -> tuple[Int64, Float64, Float64]:
    """The steps that both have, and the values of both."""
    if not (run.tags(tag) and twin.tags(tag)):
        return np.empty(0, np.int64), np.empty(0), np.empty(0)
    one, other = run.series(tag), twin.series(tag)
    steps, here, there = np.intersect1d(one.step, other.step, return_indices=True)
    values = np.where(np.isfinite(one.value), one.value, np.inf)
    return steps, values[here].astype(np.float64), other.value[there].astype(np.float64)


def _of_losses(steps: Int64, ours: Float64, twins: Float64) -> int | None:
    num = len(steps) // _WINDOW * _WINDOW
    a, b = ours[:num].reshape(-1, _WINDOW), twins[:num].reshape(-1, _WINDOW)
    with np.errstate(invalid="ignore"):
        error = np.sqrt((a.var(1, ddof=1) + b.var(1, ddof=1)) / _WINDOW) if num else np.empty(0)
        worse = (a.mean(1) - b.mean(1) > _DEVIATIONS * error) | ~np.isfinite(a).all(1)
    return _first(steps[:num:_WINDOW], worse, _IN_A_ROW)


def _of_evaluations(steps: Int64, ours: Float64, twins: Float64) -> int | None:
    return _first(steps, ours - twins > _WORSE * np.abs(twins), 2)


def _first(steps: Int64, worse: "np.typing.NDArray[np.bool_]", in_a_row: int) -> int | None:
    for place in range(len(worse) - in_a_row + 1):
        if worse[place : place + in_a_row].all():
            return int(steps[place])
    return None
