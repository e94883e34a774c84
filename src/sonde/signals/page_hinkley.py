"""Page-Hinkley: a change of a series' mean against its own mean so far."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sonde.core.records import Float64, Int64
from sonde.signals.signal import Bool


class PageHinkleyState(NamedTuple):
    """The mean since the last alarm of each tag, the two sums, and how many values they hold."""

    mean: Float64
    up: Float64
    down: Float64
    num_values: Int64


class PageHinkleyOut(NamedTuple):
    """The sums as they stood with this value, and whether they reached the threshold."""

    up: Float64
    down: Float64
    rose: Bool
    fell: Bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PageHinkley:
    """Adds up deviations from the mean so far, x̄ (with x in it): up ← max(0, α·up + x − x̄ − δ), down the other way.

    Unlike CUSUM it needs no standardised series, but its δ and λ are then in the units of x. An alarm is a sum of at
    least λ once there are enough values; the tag then forgets all and begins anew. NaN, infinite and missing values
    change nothing.

    Args:
        threshold: λ, in units of x; larger means fewer and later alarms.
        tolerance: δ, the deviation that is ignored, in units of x.
        memory: α, just below 1: how much of a sum is left after one more value.
        min_values: How many values there must be before an alarm, and again after one.

    References:
        Page, Continuous inspection schemes, Biometrika 41, 1954. Mouss et al., Test of Page-Hinkley, an approach for
        fault detection in an agro-alimentary production system, Asian Control Conference 2004.

    Example:
        >>> signal = PageHinkley(threshold=5.0, min_values=3)
        >>> state = signal.init(1)
        >>> for x in (0.0, 0.0, 0.0, 4.0, 4.0):
        ...     state, out = signal.step(state, np.array([x]))
        >>> out.up.round(2), out.rose, state.num_values
        (array([5.39]), array([ True]), array([0]))
    """

    threshold: float = 50.0
    tolerance: float = 0.005
    memory: float = 0.9999
    min_values: int = 30

    def __post_init__(self) -> None:
        if not self.threshold > 0:
            raise ValueError(f"`PageHinkley(threshold=...)` must be above 0, got {self.threshold}.")
        if not self.tolerance >= 0:
            raise ValueError(f"`PageHinkley(tolerance=...)` must be at least 0, got {self.tolerance}.")
        if not 0 < self.memory <= 1:
            raise ValueError(f"`PageHinkley(memory=...)` must be in (0, 1], got {self.memory}.")
        if self.min_values < 1:
            raise ValueError(f"`PageHinkley(min_values=...)` must be at least 1, got {self.min_values}.")

    def init(self, num_tags: int) -> PageHinkleyState:
        """The state before the first value."""
        zeros = np.zeros(num_tags)
        return PageHinkleyState(zeros, zeros, zeros, np.zeros(num_tags, np.int64))

    def step(self, state: PageHinkleyState, values: Float64) -> tuple[PageHinkleyState, PageHinkleyOut]:
        """Take a value of each tag."""
        taken = np.isfinite(values)
        count = state.num_values + taken
        x = np.where(taken, values, state.mean)
        mean = state.mean + (x - state.mean) / np.maximum(count, 1)
        up = np.where(taken, np.maximum(0.0, self.memory * state.up + x - mean - self.tolerance), state.up)
        down = np.where(taken, np.maximum(0.0, self.memory * state.down - x + mean - self.tolerance), state.down)
        ready = count >= self.min_values
        rose, fell = ready & (up >= self.threshold), ready & (down >= self.threshold)
        keep = ~(rose | fell)
        new = PageHinkleyState(mean * keep, up * keep, down * keep, count * keep)
        return new, PageHinkleyOut(up, down, rose, fell)
