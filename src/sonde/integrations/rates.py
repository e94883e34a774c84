"""The learning rate of an update that is nothing but gradients times a number."""

from typing import NamedTuple

import numpy as np

from sonde.core.records import Float64

_PRECISION = 1e-3  # relative; a rate that is less certain is not told
_OWN_ROUNDING = 1e-13  # relative, of sums in float64
_MOST_DIGITS = 7  # float32 has no more


class Change(NamedTuple):
    """Some weights before and after an update, and their gradients.

    Computed in numbers whose relative spacing is `epsilon`.
    """

    before: Float64
    after: Float64
    gradient: Float64
    epsilon: float


def fits(change: Change, rate: float) -> bool:
    """Whether after = before - rate × gradient, to the rounding of one product and one sum.

    Example:
        >>> before, gradient = np.array([1.0, 2.0]), np.array([0.5, -3.0])
        >>> fits(Change(before, before - 0.1 * gradient, gradient, 2**-52), 0.1)
        True
        >>> fits(Change(before, before - 0.1 * gradient - 0.01 * before, gradient, 2**-52), 0.1)
        False
    """
    step = rate * change.gradient
    rest = np.abs(change.after - change.before + step)
    return bool(np.all(rest <= 2 * change.epsilon * (np.abs(change.after) + np.abs(step))))  # False where NaN


def infer(change: Change, last: float | None = None) -> float | None:
    """The rate η of an update Δ = -η g.

    Least squares over all elements, each weighted by the rounding that it bears: η = -Σ w Δ g / Σ w g². Of the numbers
    that the rounding leaves open the last rate counts, or else the shortest in decimals. A script that goes uphill,
    Δ = +η g, has the rate η as well.

    Args:
        change: What was changed.
        last: The rate of the update before.

    Returns:
        None where the update is anything else (momentum, weight decay, another gradient), where it is lost in rounding,
        and where a number is not finite.

    Example:
        >>> before, gradient = np.array([1.0, 2.0], np.float32), np.array([0.5, -3.0], np.float32)
        >>> after = before - np.float32(0.1) * gradient
        >>> infer(Change(*(x.astype(np.float64) for x in (before, after, gradient)), 2**-23))
        0.1
    """
    if last is not None and (fits(change, last) or fits(change, -last)):
        return last
    moved = change.after - change.before
    with np.errstate(all="ignore"):  # whatever is not finite fits nothing
        rounding = change.epsilon * (np.abs(change.after) + np.abs(moved))
        counts = (rounding > 0) & (change.gradient != 0)
        slopes = change.gradient[counts] / rounding[counts]
        size = np.sum(slopes**2)
        rate = -float(np.sum(slopes * moved[counts] / rounding[counts]) / size)
        error = float(1 / np.sqrt(size)) + max(change.epsilon, _OWN_ROUNDING) * abs(rate)
    if not (error <= _PRECISION * abs(rate) and fits(change, rate)):
        return None
    return _shortest(abs(rate), error)


def _shortest(value: float, error: float) -> float:
    candidates = (float(f"{value:.{digits}g}") for digits in range(1, _MOST_DIGITS + 1))
    return next((one for one in candidates if abs(one - value) <= error), value)
