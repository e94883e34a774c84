"""Two-sided CUSUM: small, lasting shifts of a standardised series."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sonde.core.records import Float64
from sonde.signals.signal import Bool
from sonde.signals.windows import FEW

_OVERSHOOT = 1.166  # twice Siegmund's 0.583 standard deviations by which a sum passes its limit on average


class CusumState(NamedTuple):
    """The two sums of each tag."""

    up: Float64
    down: Float64


class CusumOut(NamedTuple):
    """The sums as they stood with this value, and whether they passed the threshold."""

    up: Float64
    down: Float64
    rose: Bool
    fell: Bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Cusum:
    """Adds up what a standardised series z has too much: up ← max(0, up + z − k), down ← max(0, down − z − k).

    An alarm is a sum above h; that sum then starts again at 0, so a lasting shift alarms again and again, and what is
    over is soon forgotten. A shift by δ > k standard deviations is found after about (h + 1.2)/(δ − k) values. NaN,
    infinite and missing values change nothing. z must be free of autocorrelation (see `forecast`): else alarms come
    far more often than `threshold_for` promises.

    Args:
        threshold: h; larger means fewer and later alarms. `threshold_for` computes it.
        slack: k, half the smallest shift that matters, in standard deviations.
        clip: Values beyond ±clip count as ±clip. With clip − k < h one outlier alone is never an alarm.

    References:
        Page, Continuous inspection schemes, Biometrika 41, 1954.

    Example:
        >>> cusum = Cusum(threshold=4.0)
        >>> state = cusum.init(1)
        >>> for z in (2.0, 2.0, 2.0):
        ...     state, out = cusum.step(state, np.array([z]))
        >>> out.up, out.rose, state.up
        (array([4.5]), array([ True]), array([0.]))
    """

    threshold: float
    slack: float = 0.5
    clip: float = math.inf

    def __post_init__(self) -> None:
        for name in ("threshold", "slack", "clip"):
            if not getattr(self, name) > 0:
                raise ValueError(f"`Cusum({name}=...)` must be above 0, got {getattr(self, name)}.")

    def init(self, num_tags: int) -> CusumState:
        """The state before the first value."""
        return CusumState(np.zeros(num_tags), np.zeros(num_tags))

    def step(self, state: CusumState, values: Float64) -> tuple[CusumState, CusumOut]:
        """Take a standardised value of each tag."""
        if len(values) <= FEW:
            return self._few(state, values)
        taken = np.isfinite(values)
        z = np.clip(np.where(taken, values, 0.0), -self.clip, self.clip)
        up = np.where(taken, np.maximum(0.0, state.up + z - self.slack), state.up)
        down = np.where(taken, np.maximum(0.0, state.down - z - self.slack), state.down)
        rose, fell = up > self.threshold, down > self.threshold
        return CusumState(np.where(rose, 0.0, up), np.where(fell, 0.0, down)), CusumOut(up, down, rose, fell)

    def _few(self, state: CusumState, values: Float64) -> tuple[CusumState, CusumOut]:
        ups, downs = state.up.tolist(), state.down.tolist()
        for tag, value in enumerate(values.tolist()):
            if math.isfinite(value):
                z = min(max(value, -self.clip), self.clip)
                ups[tag] = max(0.0, ups[tag] + z - self.slack)
                downs[tag] = max(0.0, downs[tag] - z - self.slack)
        up, down = np.array((ups, downs), np.float64)
        rose, fell = up > self.threshold, down > self.threshold
        if max((*ups, *downs), default=0.0) > self.threshold:
            return CusumState(np.where(rose, 0.0, up), np.where(fell, 0.0, down)), CusumOut(up, down, rose, fell)
        return CusumState(up, down), CusumOut(up, down, rose, fell)


def threshold_for(false_alarms: float, num_tests: float, *, slack: float = 0.5) -> float:
    """The h at which `Cusum` gives `false_alarms` on average over `num_tests` values of pure normal noise.

    Siegmund: a one-sided sum passes h after ARL = (exp(2kb) − 2kb − 1)/(2k²) values on average, b = h + 1.166; the
    two-sided one after half as many, so that ARL/2 must be num_tests/false_alarms. Good to about 5% of the ARL.

    Args:
        false_alarms: Expected number over the whole run, all series together; below 1 it is about the probability of
            any.
        num_tests: Values tested: steps × series.
        slack: k of the CUSUM.

    References:
        Siegmund, Sequential analysis, Springer 1985.

    Example:
        >>> round(threshold_for(215, 100_000), 1)  # the textbook's h = 5: an alarm every 465 values
        5.0
        >>> round(threshold_for(0.01, 100_000 * 50), 1)
        18.9
    """
    if not 0 < false_alarms < num_tests:
        raise ValueError(
            f"`threshold_for(false_alarms, num_tests)` needs 0 < false_alarms < num_tests, "
            f"got {false_alarms} and {num_tests}."
        )
    if not slack > 0:
        raise ValueError(f"`threshold_for(slack=...)` must be above 0, got {slack}.")
    run_length = 2 * num_tests / false_alarms
    b = math.log(2 * slack**2 * run_length + 1) / (2 * slack)
    for _ in range(50):  # b = ln(2k²·ARL + 2kb + 1)/(2k) contracts, since its right side grows more slowly than b
        b = math.log(2 * slack**2 * run_length + 2 * slack * b + 1) / (2 * slack)
    return max(b - _OVERSHOOT, 0.0)
