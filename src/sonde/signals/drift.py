"""A slow, persistent rise of a checked quantity, such as the mean gain of gradients."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sonde.core.records import Float64, Int64
from sonde.signals import windows
from sonde.signals.signal import Bool


class DriftState(NamedTuple):
    """The last checks of each tag, oldest first, and how many rises in a row ended at the newest."""

    history: Float64
    num_rises: Int64


class DriftOut(NamedTuple):
    """How much each tag rose, and whether that is drift."""

    rise: Float64
    """Over the window, relative to its first check; NaN below `min_values` or where that is not above 0."""
    num_rises: Int64
    drifting: Bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Drift is all three: a rise by more than 10% over 5 checks, 3 rises in a row, and more than natural variation.

    With the checks g₁ … g₁₀ of the history (g₁₀ the newest), rise = g₁₀/g₆ − 1, and natural variation is
    g₁₀ − min g ≤ 2·0.05: as long as a quantity stays within ±0.05 of anything it never drifts, and a single jump, as at
    the border of two epochs, is no drift either. While there are fewer checks than the window holds, the first one
    stands for g₆; below `min_values` the signal abstains. For a quantity that must not *fall* give its inverse. NaN,
    infinite and missing checks are left out.

    Args:
        threshold: Relative rise over the window; larger means fewer alarms.
        window: Checks over which the rise is taken.
        history: Checks that are remembered.
        min_rises: Rises in a row, N.
        min_values: Checks below which nothing is said.
        variation: Half the width of the band of natural variation, in units of the quantity.

    Example:
        >>> drift = Drift()
        >>> state = drift.init(1)
        >>> for gain in (1.02, 0.98, 1.0, 1.06, 1.12, 1.18):
        ...     state, out = drift.step(state, np.array([gain]))
        >>> out.rise.round(2), out.num_rises, out.drifting
        (array([0.2]), array([4]), array([ True]))
    """

    threshold: float = 0.10
    window: int = 5
    history: int = 10
    min_rises: int = 3
    min_values: int = 3
    variation: float = 0.05

    def __post_init__(self) -> None:
        if not self.threshold > 0:
            raise ValueError(f"`Drift(threshold=...)` must be above 0, got {self.threshold}.")
        if not 2 <= self.window <= self.history:
            raise ValueError(f"`Drift(window=...)` must be from 2 to the history's {self.history}, got {self.window}.")
        if not 2 <= self.min_values <= self.window:
            raise ValueError(
                f"`Drift(min_values=...)` must be from 2 to the window's {self.window}, got {self.min_values}."
            )
        if self.min_rises < 1:
            raise ValueError(f"`Drift(min_rises=...)` must be at least 1, got {self.min_rises}.")
        if not self.variation >= 0:
            raise ValueError(f"`Drift(variation=...)` must be at least 0, got {self.variation}.")

    def init(self, num_tags: int) -> DriftState:
        """The state before the first check."""
        return DriftState(windows.empty(num_tags, self.history), np.zeros(num_tags, np.int64))

    def step(self, state: DriftState, values: Float64) -> tuple[DriftState, DriftOut]:
        """Take a check of each tag."""
        history = windows.slide(state.history, values)
        rises = np.where(values > state.history[:, -1], state.num_rises + 1, 0)
        rises = np.where(np.isfinite(values), rises, state.num_rises)
        recent = history[:, -self.window :]
        first = np.take_along_axis(recent, np.isfinite(recent).argmax(axis=1)[:, None], axis=1)[:, 0]
        newest = history[:, -1]
        known = np.isfinite(history[:, -self.min_values]) & (first > 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            rise = np.where(known, newest / first - 1, np.nan)
        climb = newest - np.fmin.reduce(history, axis=1)
        # A few float32 roundings of slack, so that a band of exactly ±0.05 is inside.
        band = 2 * self.variation + 4 * windows.RESOLUTION * np.abs(newest)
        drifting = (rise > self.threshold) & (rises >= self.min_rises) & (climb > band)
        return DriftState(history, rises), DriftOut(rise, rises, drifting)
