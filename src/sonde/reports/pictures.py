"""Series of a run as curves: a window of buckets each, so that a picture costs what it shows, not what was recorded."""

import numpy as np

from sonde.core.errors import TagNotFound
from sonde.core.records import Float64, Window
from sonde.reports.charts import Curve, LineStyle
from sonde.store.reader import Run

_POINTS = 500


def window(
    run: Run, tag: str, start: int | None = None, end: int | None = None, *, points: int = _POINTS
) -> Window | None:
    """A series in buckets; None where the run has no value of it there."""
    try:
        found = run.window(tag, start, end, points)
    except TagNotFound:
        return None
    return found if len(found.step) else None


def curve(
    run: Run,
    tag: str,
    label: str,
    *,
    start: int | None = None,
    end: int | None = None,
    look: LineStyle = LineStyle.MAIN,
    series: int = 0,
) -> Curve | None:
    """A series as a curve, with the range of each bucket and the steps at which it was not finite."""
    found = window(run, tag, start, end)
    if found is None:
        return None
    step, mean = found.step.astype(np.float64), found.mean.astype(np.float64)
    many = bool((found.finite > 1).any())
    nothing = np.empty(0)
    return Curve(
        label=label,
        step=step,
        value=mean,
        low=found.min.astype(np.float64) if many else nothing,
        high=found.max.astype(np.float64) if many else nothing,
        lost=step[found.nonfinite > 0],
        look=look,
        series=series,
    )


def smoothed(values: Float64, *, length: float) -> Float64:
    """A moving average with a memory of `length` values, bias-corrected; NaN takes the average so far.

    Example:
        >>> smoothed(np.array([1.0, 3.0, np.nan]), length=2.0).round(3)
        array([1.   , 2.333, 2.333])
    """
    decay = 1 - 1 / max(length, 1.0)
    total = weight = 0.0
    averages = []
    for value in values.tolist():
        if np.isfinite(value):
            total, weight = decay * total + (1 - decay) * value, decay * weight + (1 - decay)
        averages.append(total / weight if weight else np.nan)
    return np.array(averages)
