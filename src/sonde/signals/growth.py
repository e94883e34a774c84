"""When an exponentially growing series will reach a limit."""

from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from sonde.core.records import Float64
from sonde.signals import lines, windows
from sonde.signals.p_values import critical_t


class GrowthState(NamedTuple):
    """The logarithms of the last values of each tag and their steps, oldest first."""

    steps: Float64
    logs: Float64


class GrowthOut(NamedTuple):
    """The growth of each tag and how many steps it leaves; NaN where the signal abstains."""

    rate: Float64
    """Of the logarithm, per step: the value doubles every ln 2/rate steps. Known whenever there are enough values."""
    r_squared: Float64
    """The share of the variance of the logarithm that steady growth explains."""
    steps_left: Float64
    earliest: Float64
    """The lower end of the confidence interval of `steps_left`."""
    latest: Float64


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Fits ln x = α + r·step to the last W values and says in how many steps that line reaches a limit.

    The interval is Fieller's, of the quotient (ln limit − α)/r, with errors that allow for autocorrelation
    (`lines.fit`). It abstains where the line explains less than `min_r_squared` of the variance or where r might be 0
    or below at the confidence asked for: a series that does not grow has no deadline. Growth faster than exponential
    arrives before `steps_left`. At or above the limit 0 steps are left. Values of 0 or below, NaN, infinite and missing
    ones are left out.

    Args:
        limit: What must not be reached, such as the largest number of a dtype (65504 for float16).
        window: W, in values.
        min_values: How many values there must be for an answer, at least 6.
        min_r_squared: In [0, 1]; larger means fewer forecasts.
        confidence: Of the interval, in (0, 1).

    References:
        Fieller, Some problems in interval estimation, J. R. Stat. Soc. B 16, 1954.

    Example:
        >>> growth = Growth(limit=65504.0, min_values=6)
        >>> state = growth.init(1)
        >>> for at, x in enumerate((1.0, 2.1, 3.9, 8.2, 15.8, 32.3, 63.5)):
        ...     state, out = growth.step(state, np.array([x]), at)
        >>> out.rate.round(2), out.steps_left.round(1), out.earliest.round(1), out.latest.round(1)
        (array([0.69]), array([10.1]), array([9.8]), array([10.4]))
    """

    limit: float = float(np.finfo(np.float32).max)
    window: int = 64
    min_values: int = 10
    min_r_squared: float = 0.8
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if not 0 < self.limit < np.inf:
            raise ValueError(f"`Growth(limit=...)` must be a positive finite number, got {self.limit}.")
        if not 6 <= self.min_values <= self.window:
            raise ValueError(
                f"`Growth(min_values=...)` must be from 6 to the window's {self.window}, got {self.min_values}."
            )
        if not 0 <= self.min_r_squared <= 1:
            raise ValueError(f"`Growth(min_r_squared=...)` must be in [0, 1], got {self.min_r_squared}.")
        if not 0 < self.confidence < 1:
            raise ValueError(f"`Growth(confidence=...)` must be in (0, 1), got {self.confidence}.")

    def init(self, num_tags: int) -> GrowthState:
        """The state before the first value."""
        return GrowthState(windows.empty(num_tags, self.window), windows.empty(num_tags, self.window))

    def step(self, state: GrowthState, values: Float64, at: int) -> tuple[GrowthState, GrowthOut]:
        """Take a value of each tag, measured at training step `at`."""
        state = self.take(state, values, at)
        return state, self.judge(state)

    def take(self, state: GrowthState, values: Float64, at: int) -> GrowthState:
        """Take a value of each tag without an answer, which costs ten times as much."""
        if len(values) <= windows.FEW and all(0 < value < np.inf for value in values.tolist()):
            return GrowthState(windows.pushed(state.steps, float(at)), windows.pushed(state.logs, np.log(values)))
        taken = np.isfinite(values) & (values > 0)
        steps = windows.slide(state.steps, np.where(taken, float(at), np.nan))
        return GrowthState(steps, windows.slide(state.logs, np.log(np.where(taken, values, np.nan))))

    def judge(self, state: GrowthState) -> GrowthOut:
        """The growth of each tag over the values that were taken."""
        steps, logs = state
        line = lines.fit(steps, logs)
        known = np.isfinite(logs[:, -self.min_values])
        z = NormalDist().inv_cdf(0.5 + self.confidence / 2)
        t = critical_t(z, np.maximum(line.freedom, 1))
        error, rate = t * line.slope_error, line.slope
        grows = known & (line.r_squared >= self.min_r_squared) & (rate > error)
        way = np.log(self.limit) - line.level
        with np.errstate(invalid="ignore", divide="ignore"):
            sure = rate**2 - error**2
            margin = np.sqrt(way**2 * error**2 + (t * line.level_error) ** 2 * np.maximum(sure, 0.0))
            arrivals = (way / rate, (way * rate - margin) / sure, (way * rate + margin) / sure)
        left = (np.where(grows, np.maximum(arrival - line.reach, 0.0), np.nan) for arrival in arrivals)
        fit = (np.where(known, part, np.nan) for part in (rate, line.r_squared))
        return GrowthOut(*fit, *left)
