"""Memory that grows steadily: the test that leaks and forecasts share."""

import itertools
from typing import NamedTuple

import numpy as np

from sonde.signals import lines

History = tuple[tuple[int, float], ...]
"""Steps and bytes, oldest first."""

_MOST = 48
_LEAST_BYTES = 3e7  # what an interpreter's and an allocator's own stock may take


class Growth(NamedTuple):
    """Of a series that grows along a line."""

    slope: float
    """Bytes a step."""
    since: int
    """The step from which on it was judged …"""
    steps: int
    """… and how many there are from there to the last reading."""
    first: float
    last: float

    @property
    def total(self) -> float:
        """By which the line rose."""
        return self.slope * self.steps


def extended(history: History, step: int, value: float) -> History:
    """With one more reading; of long runs every second one is forgotten."""
    longer = (*history, (step, value))
    return longer if len(longer) <= _MOST else longer[1::2]


def steady_growth(history: History, *, min_readings: int, min_steps: int, least_growth: float) -> Growth | None:
    """How a series grows, where it does so steadily; None where it does not, or there is too little to say.

    Judged after the first quarter of the readings, in which caches fill: a line with a rising slope (|t| > 5, errors
    allow for autocorrelation), growth in each third of the time, the last at least half as fast as the first.

    Args:
        history: The readings.
        min_readings: That are needed.
        min_steps: Over which they must lie.
        least_growth: Of its size altogether, and 30 MB; larger means fewer.

    Example:
        >>> history = tuple((10 * i, 1e9 + 2e7 * i) for i in range(40))
        >>> growth = steady_growth(history, min_readings=9, min_steps=150, least_growth=0.02)
        >>> round(growth.slope), growth.since, growth.steps
        (2000000, 100, 290)
    """
    settled = np.array(history[len(history) // 4 :])
    if len(settled) < min_readings or settled[-1, 0] - settled[0, 0] < min_steps:
        return None
    steps, values = settled[:, 0], settled[:, 1]
    line = lines.fit(steps[None], values[None])
    slope, error = float(line.slope[0]), float(line.slope_error[0])
    third = len(settled) // 3
    ends = [0, third, 2 * third, len(settled) - 1]
    rates = [(values[b] - values[a]) / (steps[b] - steps[a]) for a, b in itertools.pairwise(ends)]
    if slope <= 5 * error or min(rates) <= 0 or rates[-1] < 0.5 * rates[0]:
        return None
    growth = Growth(slope, int(steps[0]), int(steps[-1] - steps[0]), float(values[0]), float(values[-1]))
    if growth.total < max(least_growth * abs(float(np.median(values))), _LEAST_BYTES):
        return None
    return growth
