"""A series over the whole run, as means of blocks: bounded memory."""

import functools
import math
from typing import NamedTuple

import numpy as np

from sonde.signals import lines
from sonde.signals.medians import middle

_MOST_BLOCKS = 64


class BlockMeans(NamedTuple):
    """Means of consecutive blocks of equally many values, oldest first; 64 of them at most.

    When they are full, neighbours are joined and blocks become twice as wide: the whole run stays in view, at a
    resolution between 1/32 and 1/64 of its length. NaN, infinite and missing values are left out; values count, not
    steps.

    Example:
        >>> blocks = BlockMeans(width=2)
        >>> for value in (1.0, 3.0, float("nan"), 5.0, 7.0, 9.0):
        ...     blocks = blocks.extended(value)
        >>> blocks.means, blocks.num_values
        ((2.0, 6.0), 5)
    """

    width: int = 4
    means: tuple[float, ...] = ()
    total: float = 0.0
    """Of the values in the block that is not full yet …"""
    num_rest: int = 0
    """… and how many they are."""

    @property
    def num_values(self) -> int:
        """All that were taken."""
        return self.width * len(self.means) + self.num_rest

    def extended(self, value: float) -> "BlockMeans":
        """With one more value."""
        if not math.isfinite(value):
            return self
        total, num = self.total + value, self.num_rest + 1
        if num < self.width:
            return BlockMeans(self.width, self.means, total, num)
        means = (*self.means, total / num)
        if len(means) < _MOST_BLOCKS:
            return BlockMeans(self.width, means)
        pairs = np.array(means).reshape(-1, 2).mean(axis=1)
        return BlockMeans(2 * self.width, tuple(pairs.tolist()))

    def trend(self) -> "Trend | None":
        """How it went from the first block to the last; None below eight blocks."""
        if len(self.means) < 8:
            return None
        return _trend(self.means, self.width)


class Trend(NamedTuple):
    """A series in five numbers."""

    first: float
    """Median of the first quarter of the blocks …"""
    last: float
    """… and of the last."""
    slope: float
    """Of the line through all, per value; negative where the series falls."""
    t: float
    """The slope in standard errors that allow for autocorrelation."""
    early_share: float
    """The part of the fall that was done by the middle of the run: 1/2 on a straight line, near 1 on a curve that bends
    early, as learning curves do; NaN where there is no fall."""


@functools.lru_cache(maxsize=16)  # several rules ask at every step, and blocks become long
def line_through(means: tuple[float, ...]) -> tuple[float, float]:
    """The slope, per block, of the line through some blocks, and its standard error."""
    line = lines.fit(np.arange(len(means), dtype=np.float64)[None], np.array(means)[None])
    return float(line.slope[0]), float(line.slope_error[0])


@functools.lru_cache(maxsize=16)
def _trend(means: tuple[float, ...], width: int) -> Trend:
    quarter = len(means) // 4
    start = (len(means) - quarter) // 2
    first, half, last = map(middle, (means[:quarter], means[start : start + quarter], means[-quarter:]))
    slope, error = line_through(means)
    total = first - last
    return Trend(
        first=first,
        last=last,
        slope=slope / width,
        t=slope / error if error > 0 else 0.0,
        early_share=(first - half) / total if total != 0 else float("nan"),
    )
