"""Moments of all values of a segment of a series, each counting alike: an epoch, a phase of the learning rate."""

import math
from typing import NamedTuple


class Segment(NamedTuple):
    """The values so far: how many were finite, their mean and their central moments.

    Plain numbers, since a segment has one series: taking a value costs 1 µs, with arrays it would be ten.
    """

    num_values: int = 0
    mean: float = 0.0
    second: float = 0.0
    third: float = 0.0
    fourth: float = 0.0


class SegmentMoments(NamedTuple):
    """What the values of a segment look like; NaN where it cannot be said."""

    mean: float
    variance: float
    """Unbiased: divided by n − 1."""
    skewness: float
    kurtosis: float
    """Of a normal distribution: 3."""


def with_value(segment: Segment, value: float) -> Segment:
    """The segment with one more value; NaN, infinite and missing ones change nothing.

    With w = 1/n, δ = x − μ, a = −w·δ and b = (1−w)·δ, moments are mixed as in `sonde.signals.moments`.

    Example:
        >>> segment = Segment()
        >>> for x in (1.0, 2.0, 6.0):
        ...     segment = with_value(segment, x)
        >>> [round(moment, 3) for moment in moments(segment)]
        [3.0, 7.0, 0.595, 1.5]

    References:
        Pébay, Formulas for robust, one-pass parallel computation of covariances and arbitrary-order statistical
        moments, Sandia report SAND2008-6212, 2008.
    """
    if not math.isfinite(value):
        return segment
    num, mean, second, third, fourth = segment
    weight = 1 / (num + 1)
    rest, delta = 1 - weight, value - mean
    a, b = -weight * delta, rest * delta
    # Products, not powers: of a float that is too large a power raises, and a product is infinite.
    return Segment(
        num + 1,
        mean + weight * delta,
        rest * (second + a * a) + weight * b * b,
        rest * (third + 3 * a * second + a * a * a) + weight * b * b * b,
        rest * (fourth + 4 * a * third + 6 * a * a * second + a * a * a * a) + weight * b * b * b * b,
    )


def moments(segment: Segment) -> SegmentMoments:
    """The moments of a segment: the variance from two values on, skewness and kurtosis where not all are equal."""
    num, mean, second, third, fourth = segment
    skewness = kurtosis = math.nan
    if second > 0:
        cube, square = second * math.sqrt(second), second * second
        skewness = third / cube if cube else math.nan
        kurtosis = fourth / square if square else math.nan
    variance = second * num / (num - 1) if num > 1 else math.nan
    return SegmentMoments(mean if num else math.nan, variance, skewness, kurtosis)
