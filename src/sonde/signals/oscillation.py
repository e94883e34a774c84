"""How a series goes up and down: alternation, swing, and the sawtooth of descent in spikes."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sonde.core.records import Float64, Int64
from sonde.signals import windows
from sonde.signals.medians import median, middle


class OscillationState(NamedTuple):
    """The last values of each tag, oldest first."""

    window: Float64


class OscillationOut(NamedTuple):
    """The shape of each window; NaN (and 0 teeth) below the minimum of values, or where nothing moves."""

    turns: Float64
    """The share of differences that go against the one before: 0 monotone, 2/3 white noise, 1 alternating."""
    autocorrelation: Float64
    """Lag 1, of the differences about 0: 1 a line, −1/2 white noise, −1 alternating."""
    amplitude: Float64
    """Median |difference| over |median|."""
    sawtooth: Float64
    """(mean rise − mean fall)/(mean rise + mean fall): 0 symmetric, near 1 many small falls and few great rises."""
    num_teeth: Int64
    """Rises of more than three mean falls. One is a spike or a step; several are a saw."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Oscillation:
    """Looks at the differences d of the last W values.

        turns = mean[d_i·d_{i−1} < 0],  autocorrelation = Σ d_i·d_{i−1}/√(Σ d_i²·Σ d_{i−1}²) over the same pairs,
        amplitude = median|d|/|median x|.

    White noise about a level is *not* oscillation though it turns two times in three: ask for turns well above 2/3 and
    an autocorrelation well below −1/2. NaN, infinite and missing values are left out, so a difference may span several
    steps. Two sorts: 0.9 ms for 1,000 tags.

    Args:
        window: W.
        min_values: How many values there must be for an answer, at least 4.

    Example:
        >>> signal = Oscillation()
        >>> state = signal.init(2)
        >>> for a, b in zip([1.0, 3.0] * 5, [9.0, 8.0, 7.0, 6.0, 10.0] * 2):
        ...     state, out = signal.step(state, np.array([a, b]))
        >>> out.turns.round(2), out.autocorrelation.round(2), out.amplitude.round(2)
        (array([1.  , 0.38]), array([-1.  , -0.24]), array([1.  , 0.12]))
        >>> out.sawtooth.round(2), out.num_teeth
        (array([0. , 0.6]), array([0, 2]))
    """

    window: int = 32
    min_values: int = 8

    def __post_init__(self) -> None:
        if not 4 <= self.min_values <= self.window:
            raise ValueError(
                f"`Oscillation(min_values=...)` must be from 4 to the window's {self.window}, got {self.min_values}."
            )

    def init(self, num_tags: int) -> OscillationState:
        """The state before the first value."""
        return OscillationState(windows.empty(num_tags, self.window))

    def step(self, state: OscillationState, values: Float64) -> tuple[OscillationState, OscillationOut]:
        """Take a value of each tag."""
        state = self.take(state, values)
        return state, self.judge(state)

    def take(self, state: OscillationState, values: Float64) -> OscillationState:
        """Take a value of each tag without an answer, which costs ten times as much."""
        return OscillationState(windows.slide(state.window, values))

    def judge(self, state: OscillationState) -> OscillationOut:
        """The shape of the values that were taken."""
        window = state.window
        if len(window) == 1:
            if math.isnan(window.item(0, -self.min_values)):
                nothing = np.full(1, np.nan)
                return OscillationOut(nothing, nothing, nothing, nothing, np.zeros(1, np.int64))
            if not math.isnan(window.item(0)) and (found := self._whole(window[0])) is not None:
                return found
        known = np.isfinite(window[:, -self.min_values])
        gaps = np.diff(window, axis=1)
        seen = np.isfinite(gaps)
        d = np.where(seen, gaps, 0.0)
        squares, pairs = d * d, d[:, 1:] * d[:, :-1]
        rises, falls = d > 0, d < 0
        with np.errstate(invalid="ignore", divide="ignore"):
            rise = np.where(rises, d, 0.0).sum(axis=1) / np.maximum(rises.sum(axis=1), 1)
            fall = np.where(falls, -d, 0.0).sum(axis=1) / np.maximum(falls.sum(axis=1), 1)
            energy = np.sqrt(squares[:, 1:].sum(axis=1, where=seen[:, :-1]) * squares[:, :-1].sum(axis=1))
            shape = (
                (pairs < 0).sum(axis=1) / np.maximum(seen[:, :-1].sum(axis=1), 1),
                pairs.sum(axis=1) / energy,
                median(np.abs(gaps)) / np.abs(median(window)),
                (rise - fall) / (rise + fall),
            )
            teeth = (d > 3 * fall[:, None]).sum(axis=1, where=(fall > 0)[:, None] & known[:, None])
        moves = known & (rise + fall > 0)
        turns, autocorrelation, amplitude, sawtooth = (np.where(moves, part, np.nan) for part in shape)
        return OscillationOut(turns, autocorrelation, amplitude, sawtooth, teeth)

    def _whole(self, window: Float64) -> OscillationOut | None:
        """The same for one window that is full; None where nothing moves, or about zero."""
        d = window[1:] - window[:-1]
        pairs, squares = d[1:] * d[:-1], d * d
        steps = d.tolist()
        rises, falls = [x for x in steps if x > 0], [-x for x in steps if x < 0]
        rise, fall = sum(rises) / max(len(rises), 1), sum(falls) / max(len(falls), 1)
        level = abs(middle(window.tolist()))
        energy = math.sqrt(float(squares[1:].sum()) * float(squares[:-1].sum()))
        if not (energy > 0 and level > 0):
            return None
        return OscillationOut(
            turns=np.array([np.count_nonzero(pairs < 0) / len(pairs)]),
            autocorrelation=np.array([float(pairs.sum()) / energy]),
            amplitude=np.array([middle(list(map(abs, steps))) / level]),
            sawtooth=np.array([(rise - fall) / (rise + fall)]),
            num_teeth=np.array([sum(x > 3 * fall for x in rises) if fall > 0 else 0]),
        )
