"""Histograms of signed magnitudes: what a bin holds, which values are counted, and percentiles.

Bin b counts the finite values whose float32 bits, shifted right by 21, are b: sign, exponent and two bits of the
mantissa. 2,048 bins cover every float32, four to an octave; bins from 1,024 on hold the negative values.

A tensor of fewer than 65,536 values is counted whole. Of a larger one every 2ˢ-th run of 256 values is counted, s such
that at least 32,768 values are, and at most 8. Which run of each 2ˢ is chosen by a hash, the same at every step: a
fixed place would always meet the same columns of a matrix whose width is a power of two.
"""

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from sonde.core.records import Float64
from sonde.kernels.columns import Column

NUM_BINS = 2048
SHIFT = 21
PERCENTS = (1, 5, 25, 50, 75, 95, 99)

RUN = 256
MIN_COUNTED = 32_768  # 1% of it is 328 values: p1 and p99 of independent values are then known to 6% of their rank
MAX_SKIP = 8

_COARSE_LOWEST = -48
_COARSE_BINS = 2 * 64
NUM_COARSE = 2 * _COARSE_BINS + 1

_FINITE = 1020  # bins of one sign; the four above have the exponent of NaN and infinity


def skip(numel: int) -> int:
    """The s of a tensor: one run of 2ˢ is counted.

    Example:
        >>> skip(1000), skip(65_536), skip(50257 * 768)
        (0, 1, 8)
    """
    return min(max((numel // MIN_COUNTED).bit_length() - 1, 0), MAX_SKIP)


def percentiles(histogram: npt.NDArray[np.int32], rows: Float64 | None = None) -> Float64:
    """The values below which 1, 5, 25, 50, 75, 95 and 99 percent of the values lie, from histograms.

    The bin is found by its cumulated count, the place in it as if the density were linear between the means with the
    bins to either side. For smooth distributions the error is 0.1% to 1% of the value, up to 4% in a steep tail (with
    a constant density it would be three times that). Whatever the distribution it is below the bin's width: at most 25%
    of the value, reached where all of a bin's values sit at one of its edges. Where the tensor was not counted whole,
    sampling adds its own. Magnitudes below 2⁻¹²⁸ read as 0.

    Args:
        histogram: Counts, (..., 2048).
        rows: Statistics of the same tensors, (..., 7); keeps the percentiles between MIN and MAX, so that a constant
            is found exactly.

    Returns:
        (..., 7), NaN where nothing was counted.

    Example:
        >>> counts = np.zeros(2048, np.int32)
        >>> counts[np.float32(1.0).view(np.uint32) >> 21] = 100  # 100 values from 1 to 1.25
        >>> percentiles(counts).round(4).tolist()
        [1.0025, 1.0125, 1.0625, 1.125, 1.1875, 1.2375, 1.2475]
    """
    flat = histogram.reshape(-1, NUM_BINS)
    # Values of one step's tensors lie in a tenth of the bins: looking at all of them took three times as long.
    occupied = np.flatnonzero(np.logical_or.reduce(flat, axis=0)[_ASCENDING])
    if not len(occupied):
        return np.full((*histogram.shape[:-1], len(PERCENTS)), np.nan)
    cumulated = np.cumsum(flat[:, _ASCENDING[occupied]], axis=-1, dtype=np.float64)
    total = cumulated[:, -1:]
    rank = total * _PERCENTS / 100
    # The first bin up to which there are as many.
    found = np.minimum((cumulated[:, None, :] < rank[:, :, None]).sum(-1), len(occupied) - 1)
    place = occupied[found]
    part = 1 - (_at(cumulated, found) - rank) / np.maximum(_at(flat, _ASCENDING[place]), 1)
    before, here, after = (_density(flat, place + i) for i in (-1, 0, 1))
    left, right = before + here, here + after
    # Where the density goes from `left` to `right`, `part` of the bin's values lie below this part of its width.
    root = np.sqrt(left**2 + (right - left) * part * (left + right))
    with np.errstate(invalid="ignore"):
        below = np.where(root > 0, part * (left + right) / (left + root), part)
    values = _LOWER[place] + below * (_UPPER[place] - _LOWER[place])
    values = values.reshape(*histogram.shape[:-1], len(PERCENTS))
    total = total.reshape(*histogram.shape[:-1], 1)
    if rows is not None:
        values = np.clip(values, rows[..., Column.MIN, None], rows[..., Column.MAX, None])
    return np.where(total > 0, values, np.nan)


def coarse(histogram: npt.NDArray[np.int32], factor: float = 1.0) -> Float64:
    """Histograms in 257 bins, as they are kept: two to an octave, magnitudes from 2⁻⁴⁸ to 2¹⁶ (see `coarse_edges`).

    The bin in the middle holds zeros and all that is smaller, the first and the last also what is larger.

    Args:
        histogram: Counts, (..., 2048).
        factor: What the values are to be multiplied by, to a quarter of an octave; powers of two are exact.

    Example:
        >>> counts = np.zeros(2048, np.int32)
        >>> counts[np.float32([0.0, 1.0, -1.5]).view(np.uint32) >> 21] = 1, 2, 3
        >>> kept, (lower, upper) = coarse(counts), coarse_edges()
        >>> [(float(lower[i].round(2)), float(upper[i].round(2)), kept[i].item()) for i in np.flatnonzero(kept)]
        [(-2.0, -1.5, 3.0), (-0.0, 0.0, 1.0), (1.0, 1.5, 2.0)]
    """
    begins, place = _coarse_places(round(4 * np.log2(factor)) if 0 < factor < np.inf else 0)
    counts = np.moveaxis(histogram, -1, 0)
    kept = np.zeros((NUM_COARSE, *counts.shape[1:]))
    for first, towards in ((0, 1), (NUM_BINS // 2, -1)):
        kept[_COARSE_BINS] += counts[first]
        together = np.add.reduceat(counts[first + 1 : first + _FINITE], begins, axis=0, dtype=np.float64)
        kept[_COARSE_BINS + towards * place] += together
    return np.moveaxis(kept, 0, -1)


@functools.lru_cache(maxsize=64)  # a gradient scaler has a few dozen scales
def _coarse_places(shift: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int64]]:
    """Where runs of bins of one sign begin that become one, and the place of that, counted from the middle."""
    half = (np.arange(1, _FINITE) + shift) // 2 - 2 * (127 + _COARSE_LOWEST)
    place = np.clip(half, -1, _COARSE_BINS - 1) + 1  # 0 is the middle
    begins = np.flatnonzero(np.diff(place, prepend=-1))  # ascending, as the bins are
    return begins, place[begins]


def coarse_edges() -> tuple[Float64, Float64]:
    """Lower and upper edges of the bins of `coarse`."""
    octave = 2.0 ** np.arange(_COARSE_LOWEST, _COARSE_LOWEST + _COARSE_BINS // 2 + 1)
    edge = np.stack([octave, 1.5 * octave], axis=1).reshape(-1)[: _COARSE_BINS + 1]
    both = np.concatenate([-edge[::-1], edge])
    return both[:-1], both[1:]


def edges() -> tuple[npt.NDArray[np.int64], Float64, Float64]:
    """The bins of finite values in ascending order of their values, with their lower and upper edges.

    The two bins around zero, magnitudes below 2⁻¹²⁸, have both edges at 0.
    """
    magnitude = (np.arange(_FINITE, dtype=np.uint32) << SHIFT).view(np.float32).astype(np.float64)
    below, above = magnitude, np.append(magnitude[1:], 2.0**128)
    above[0] = 0.0
    bins = np.arange(_FINITE)
    ascending = np.concatenate([NUM_BINS // 2 + bins[::-1], bins])
    return ascending, np.concatenate([-above[::-1], below]), np.concatenate([-below[::-1], above])


def _at(values: npt.NDArray[Any], place: npt.NDArray[np.intp]) -> Float64:
    """Of each row the values at these places."""
    found: Float64 = values[np.arange(len(values))[:, None], place].astype(np.float64)
    return found


def _density(histogram: npt.NDArray[np.int32], place: npt.NDArray[np.intp]) -> Float64:
    """Values a width of a bin, by the place of its values among those of all; none outside."""
    inside = np.clip(place, 0, len(_ASCENDING) - 1)
    return np.where(place == inside, _at(histogram, _ASCENDING[inside]) / _WIDTH[inside], 0.0)


_ASCENDING, _LOWER, _UPPER = edges()
_WIDTH = np.where(_UPPER > _LOWER, _UPPER - _LOWER, np.inf)
_PERCENTS = np.array(PERCENTS)
