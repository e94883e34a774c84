"""Buckets of a series: joined end to end, and summed up until they fit a picture."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sonde.core.frames import Float32, is_missing
from sonde.core.records import Int64, Window

_EMPTY = Window(
    np.empty(0, np.int64),
    np.empty(0, np.float32),
    np.empty(0, np.float32),
    np.empty(0, np.float32),
    np.empty(0, np.int64),
    np.empty(0, np.int64),
)


def single(step: Int64, value: Float32) -> Window:
    """The measured points of a series, a bucket each."""
    measured = ~is_missing(value)
    step, value = step[measured], value[measured]
    finite = np.isfinite(value)
    shown = np.where(finite, value, np.float32(np.nan))
    return Window(step, shown, shown, shown, finite.astype(np.int64), (~finite).astype(np.int64))


def pick(window: Window, places: npt.NDArray[np.intp]) -> Window:
    """Some of the buckets."""
    return Window(
        window.step[places],
        window.min[places],
        window.mean[places],
        window.max[places],
        window.finite[places],
        window.nonfinite[places],
    )


def join(pieces: Sequence[Window]) -> Window:
    """Windows one after another as one."""
    if len(pieces) == 1:
        return pieces[0]
    return Window(*(np.concatenate([piece[i] for piece in (_EMPTY, *pieces)]) for i in range(len(_EMPTY))))


def zoom(window: Window, points: int) -> Window:
    """The same in at most `points` buckets of about equal numbers of values; minima, maxima and counts are exact.

    Example:
        >>> steps, values = np.arange(6), np.array([5, 1, 4, 2, 9, 3], dtype=np.float32)
        >>> one = np.ones(6, dtype=np.int64)
        >>> zoom(Window(steps, values, values, values, one, 0 * one), 2).max
        array([5., 9.], dtype=float32)
    """
    if len(window.step) <= points:
        return window
    weight = np.cumsum(window.finite + window.nonfinite)
    # A bucket begins where the running number of values passes another 1/points of the whole.
    part = np.minimum((weight - 1) * points // weight[-1], points - 1)
    cuts = np.flatnonzero(np.diff(part, prepend=-1))
    finite = np.add.reduceat(window.finite, cuts)
    low = np.minimum.reduceat(np.where(window.finite > 0, window.min, np.float32(np.inf)), cuts)
    high = np.maximum.reduceat(np.where(window.finite > 0, window.max, np.float32(-np.inf)), cuts)
    total = np.add.reduceat(np.where(window.finite > 0, window.mean.astype(np.float64) * window.finite, 0.0), cuts)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (total / finite).astype(np.float32)
    low[finite == 0] = high[finite == 0] = np.nan
    return Window(window.step[cuts], low, mean, high, finite, np.add.reduceat(window.nonfinite, cuts))
