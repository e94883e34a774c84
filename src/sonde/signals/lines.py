"""Straight lines through the windows of many tags, with an error that knows of autocorrelation."""

import math
from typing import NamedTuple

import numpy as np

from sonde.core.records import Float64, Int64
from sonde.signals.signal import Bool
from sonde.signals.windows import RESOLUTION


class Line(NamedTuple):
    """The line of each tag; meaningless below four values."""

    slope: Float64
    slope_error: Float64
    freedom: Float64
    """Degrees of freedom of slope/slope_error as Student's t."""
    level: Float64
    """The line's height in the middle, at the mean of the steps, where it does not depend on the slope …"""
    level_error: Float64
    reach: Float64
    """… and how many steps there are from there to the newest one."""
    r_squared: Float64
    """The share of the variance that the line explains."""


def fit(steps: Float64, values: Float64) -> Line:
    """The least-squares line of each row of a window (NaN where it holds no value).

    The noise is what a *parabola* leaves, r: a smooth curve would otherwise pass for slowly wandering noise. Its lag-1
    autocorrelation ρ, freed of its small-sample bias, makes n values count as n_eff = n(1 − ρ)/(1 + ρ), with ρ in
    [0, 0.98]; then

        slope_error² = Σr²/(n − 3) · n/n_eff / Σ(t − t̄)²,  level_error² = Σr²/(n − 3)/n_eff,
        freedom = max(n_eff − 3, 1).

    Noise below float32's rounding is taken to be that rounding, so a constant series has no slope.

    References:
        Santer et al., Statistical significance of trends and trend differences in layer-average atmospheric temperature
        time series, J. Geophys. Res. 105, 2000. Kendall, Note on bias in the estimation of
        autocorrelation, Biometrika 41, 1954.
    """
    if len(values) == 1 and math.isfinite(values.sum()) and (line := _whole(steps[0], values[0])) is not None:
        return line
    seen = np.isfinite(values)
    count = seen.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        t, _ = _centred(steps, seen, count)
        y, mean = _centred(values, seen, count)
        tt, yy = dot(t, t), dot(y, y)
        slope = dot(t, y) / tt
        # The part of t² that neither a level nor a line can take up.
        bend, _ = _centred(t * t, seen, count)
        bend -= (dot(bend, t) / tt)[:, None] * t
        bb = dot(bend, bend)
        curve = np.where(bb > 0, dot(bend, y) / bb, 0.0)
        rest = y - slope[:, None] * t
        rest -= curve[:, None] * bend
        rr = dot(rest, rest)
        lag_1 = np.where(rr > 0, dot(rest[:, 1:], rest[:, :-1]) / rr, 0.0)
        # A fit takes up part of the correlation; 4/n and 7/n make up for a parabola's (simulated; Kendall's form).
        rho = np.clip((lag_1 + 4 / count) / np.maximum(1 - 7 / count, 0.1), 0.0, 0.98)
        shrink = (1 - rho) / (1 + rho)
        rounding = RESOLUTION**2 * (mean**2 + yy / count)
        noise = np.maximum(rr / np.maximum(count - 3, 1), rounding)
        return Line(
            slope=slope,
            slope_error=np.sqrt(noise / shrink / tt),
            freedom=np.maximum(count * shrink - 3, 1.0),
            level=mean,
            level_error=np.sqrt(noise / shrink / count),
            reach=t[:, -1],
            r_squared=np.where(yy > count * rounding, slope * slope * tt / yy, 0.0),
        )


def _whole(steps: Float64, values: Float64) -> Line | None:
    """`fit` for one row without gaps, in a third of the time; None where all steps are the same."""
    count = len(values)
    mean = float(values.sum()) / count
    t, y = steps - float(steps.sum()) / count, values - mean
    tt, yy, ty = (float(a.dot(b)) for a, b in ((t, t), (y, y), (t, y)))
    if not tt > 0:
        return None
    slope = ty / tt
    bend = t * t
    bend -= float(bend.sum()) / count
    bend -= float(bend.dot(t)) / tt * t
    bb = float(bend.dot(bend))
    rest = y - slope * t
    if bb > 0:
        rest -= float(bend.dot(y)) / bb * bend
    rr = float(rest.dot(rest))
    lag_1 = float(rest[1:].dot(rest[:-1])) / rr if rr > 0 else 0.0
    rho = min(max((lag_1 + 4 / count) / max(1 - 7 / count, 0.1), 0.0), 0.98)
    shrink = (1 - rho) / (1 + rho)
    rounding = RESOLUTION**2 * (mean * mean + yy / count)
    noise = max(rr / max(count - 3, 1), rounding)
    line = (
        slope,
        math.sqrt(noise / shrink / tt),
        max(count * shrink - 3, 1.0),
        mean,
        math.sqrt(noise / shrink / count),
        t.item(-1),
        slope * slope * tt / yy if yy > count * rounding else 0.0,
    )
    return Line(*np.array(line)[:, None])


def dot(a: Float64, b: Float64) -> Float64:
    """The inner product of each row of `a` with the same one of `b`."""
    product: Float64 = np.einsum("ij,ij->i", a, b)
    return product


def _centred(rows: Float64, seen: Bool, count: Int64) -> tuple[Float64, Float64]:
    """Rows less their means, 0 where nothing was seen, and the means."""
    filled = rows if seen.all() else np.where(seen, rows, 0.0)
    mean = np.einsum("ij->i", filled) / count
    return (filled - mean[:, None]) * (1.0 if seen.all() else seen), mean
