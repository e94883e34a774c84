"""Moving mean, variance, skewness and kurtosis with exponentially falling weights."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sonde.core.records import Float64, Int64
from sonde.signals import windows


class MomentsState(NamedTuple):
    """Weighted central moments of each tag, the sum of the squared weights, and the number of values."""

    mean: Float64
    second: Float64
    third: Float64
    fourth: Float64
    squared_weights: Float64
    num_values: Int64


class MomentsOut(NamedTuple):
    """What a window of about 1/(1−β) values looks like; NaN where it cannot be said yet."""

    mean: Float64
    variance: Float64
    skewness: Float64
    kurtosis: Float64
    """Of a normal distribution: 3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """The first four moments of series, the newest value weighing w_t = (1−β)/(1−β^t).

    The old distribution and the new value are mixed exactly: with δ = x − μ, a = −w·δ and b = (1−w)·δ,

        μ ← μ + w·δ,  m₂ ← (1−w)(m₂ + a²) + w·b²,  m₃ ← (1−w)(m₃ + 3a·m₂ + a³) + w·b³,
        m₄ ← (1−w)(m₄ + 4a·m₃ + 6a²·m₂ + a⁴) + w·b⁴.

    The variance is m₂/(1 − Σw²), unbiased; in the long run 1 − Σw² is 2β/(1+β). NaN, infinite and missing values change
    nothing. Variance, skewness and kurtosis are NaN below two values, the latter two also where all values are equal.

    Args:
        decay: β, in [0.95, 0.999]; larger is a longer window.

    References:
        Finch, Incremental calculation of weighted mean and variance, 2009. Pébay, Formulas for robust, one-pass
        parallel computation of covariances and arbitrary-order statistical moments, Sandia report SAND2008-6212, 2008.

    Example:
        >>> moments = Moments()
        >>> state = moments.init(1)
        >>> for x in (1.0, 2.0, 3.0):
        ...     state, out = moments.step(state, np.array([x]))
        >>> out.mean.round(2), out.variance.round(2)
        (array([2.01]), array([1.]))
    """

    decay: float = 0.99

    def __post_init__(self) -> None:
        if not 0.95 <= self.decay <= 0.999:
            raise ValueError(f"`Moments(decay=...)` must be in [0.95, 0.999], got {self.decay}.")

    def init(self, num_tags: int) -> MomentsState:
        """The state before the first value."""
        zeros = np.zeros(num_tags)
        return MomentsState(zeros, zeros, zeros, zeros, zeros, np.zeros(num_tags, np.int64))

    def step(self, state: MomentsState, values: Float64) -> tuple[MomentsState, MomentsOut]:
        """Take a value of each tag."""
        if 0 < len(values) <= windows.FEW:
            return self._few(state, values)
        taken = np.isfinite(values)
        count = state.num_values + taken
        weight = np.where(taken, (1 - self.decay) / (1 - self.decay ** np.maximum(count, 1)), 0.0)
        rest = 1 - weight
        delta = np.where(taken, values, state.mean) - state.mean
        shift, far = -weight * delta, rest * delta
        second = rest * (state.second + shift**2) + weight * far**2
        third = rest * (state.third + 3 * shift * state.second + shift**3) + weight * far**3
        fourth = (
            rest * (state.fourth + 4 * shift * state.third + 6 * shift**2 * state.second + shift**4) + weight * far**4
        )
        squared = rest**2 * state.squared_weights + weight**2
        new = MomentsState(state.mean + weight * delta, second, third, fourth, squared, count)
        with np.errstate(invalid="ignore", divide="ignore"):
            out = MomentsOut(
                mean=np.where(count > 0, new.mean, np.nan),
                variance=np.where(count > 1, second / (1 - squared), np.nan),
                skewness=np.where(second > 0, third / second**1.5, np.nan),
                kurtosis=np.where(second > 0, fourth / second**2, np.nan),
            )
        return new, out

    def _few(self, state: MomentsState, values: Float64) -> tuple[MomentsState, MomentsOut]:
        before = zip(values.tolist(), *(array.tolist() for array in state), strict=True)
        new = [self.one(*each) for each in before]
        mean, second, third, fourth, squared, count, *out = (
            np.array(some, np.float64) for some in zip(*new, strict=True)
        )
        return MomentsState(mean, second, third, fourth, squared, count.astype(np.int64)), MomentsOut(*out)

    def one(
        self, value: float, mean: float, second: float, third: float, fourth: float, squared: float, count: int
    ) -> tuple[float, ...]:
        """The state of one tag after this value, and what its window looks like."""
        if math.isfinite(value):
            count += 1
            weight = (1 - self.decay) / (1 - self.decay**count)
            rest = 1 - weight
            delta = value - mean
            a, b = -weight * delta, rest * delta
            # Products, not powers: of a float that is too large a power raises, and a product is infinite.
            fourth = rest * (fourth + 4 * a * third + 6 * a * a * second + a * a * a * a) + weight * b * b * b * b
            third = rest * (third + 3 * a * second + a * a * a) + weight * b * b * b
            second = rest * (second + a * a) + weight * b * b
            squared = rest * rest * squared + weight * weight
            mean += weight * delta
        skewness = kurtosis = math.nan
        if second > 0:
            cube, square = second * math.sqrt(second), second * second
            skewness = third / cube if cube else math.nan
            kurtosis = fourth / square if square else math.nan
        return (
            *(mean, second, third, fourth, squared, count),
            *(mean if count else math.nan, second / (1 - squared) if count > 1 else math.nan, skewness, kurtosis),
        )
