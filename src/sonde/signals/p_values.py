"""Probabilities and quantiles of a few distributions, over arrays, without scipy."""

import math
from statistics import NormalDist

import numpy as np

from sonde.core.records import Float64

_erfc = np.frompyfunc(math.erfc, 1, 1)


def below(z: Float64) -> Float64:
    """The probability that a standard normal variable stays below `z`; NaN for NaN.

    Example:
        >>> below(np.array([0.0, 1.96])).round(3)
        array([0.5  , 0.975])
    """
    return 0.5 * np.asarray(_erfc(-np.asarray(z) / math.sqrt(2)), np.float64)


def two_sided(t: Float64, freedom: Float64) -> Float64:
    """The probability that |Student's t| of `freedom` degrees exceeds |t|.

    Through the normal variable z = (8f + 1)/(8f + 3)·√(f·ln(1 + t²/f)), good to 0.003 in p from 4 degrees on, and
    cautious (p too large) below.

    References:
        Wallace, Bounds on normal approximations to Student's and the chi-square distributions, Ann. Math. Stat. 30,
        1959.

    Example:
        >>> two_sided(np.array([2.086]), np.array([20.0])).round(4)
        array([0.05])
    """
    z = (8 * freedom + 1) / (8 * freedom + 3) * np.sqrt(freedom * np.log1p(t * t / freedom))
    return np.asarray(_erfc(z / math.sqrt(2)), np.float64)


def critical_t(z: float, freedom: Float64) -> Float64:
    """The t of `freedom` degrees that is as rare as a normal `z`: the inverse of what `two_sided` does.

    Example:
        >>> critical_t(1.96, np.array([5.0, 20.0, 1000.0])).round(2)
        array([2.58, 2.09, 1.96])
    """
    wide = z * (8 * freedom + 3) / (8 * freedom + 1)
    t: Float64 = np.sqrt(freedom * np.expm1(wide * wide / freedom))
    return t


def bridge_exceeds(height: Float64) -> Float64:
    """The probability that a Brownian bridge leaves ±height (Kolmogorov's distribution): 2·Σ (−1)^(j+1)·exp(−2j²x²).

    Example:
        >>> bridge_exceeds(np.array([1.358])).round(3)
        array([0.05])
    """
    j = np.arange(1, 8)
    with np.errstate(invalid="ignore", over="ignore"):
        terms = (-1.0) ** (j + 1) * np.exp(-2.0 * (j * np.asarray(height)[..., None]) ** 2)
    # Seven terms do for heights above 0.3, below which the probability is 1 to eight digits.
    return np.where(np.asarray(height) < 0.3, 1.0, np.clip(2 * terms.sum(axis=-1), 0.0, 1.0))


def mixture_quantile(mean: Float64, deviation: Float64, weight: Float64, p: float) -> Float64:
    """The p-quantile of mixtures of normal distributions, a row each; weights sum to 1.

    Example:
        >>> mixture_quantile(np.array([[0.0, 10.0]]), np.array([[1.0, 1.0]]), np.array([0.9, 0.1]), 0.45).round(3)
        array([0.])
    """
    reach = (abs(NormalDist().inv_cdf(p)) + 4) * deviation
    low, high = (mean - reach).min(axis=1), (mean + reach).max(axis=1)
    wide = np.maximum(deviation, np.finfo(np.float64).tiny)
    for _ in range(40):  # halves: far below any error that matters
        middle = (low + high) / 2
        with np.errstate(over="ignore"):  # a deviation of 0 is a step
            less = (below((middle[:, None] - mean) / wide) * weight).sum(axis=1) < p
        low, high = np.where(less, middle, low), np.where(less, high, middle)
    found: Float64 = (low + high) / 2
    return found
