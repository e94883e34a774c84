"""Percentiles and shares of values out of histograms, with 42 numbers a tensor leaving the device instead of 2,048."""

import functools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sonde.core.records import Float64
from sonde.kernels.histograms import NUM_BINS, NUM_COARSE, PERCENTS, SHIFT, coarse_edges, edges, percentiles
from sonde.kernels.uploads import uploaded

_ASCENDING = edges()[0]
_NUM_FINITE = len(_ASCENDING)
_MINUS_0, _PLUS_0 = _NUM_FINITE // 2 - 1, _NUM_FINITE // 2  # where the two bins around 0 stand in ascending order


def _first_normal(dtype: torch.dtype) -> int:
    """The bin of the smallest normal number of a format no wider than float32."""
    return int(np.float32(torch.finfo(dtype).tiny).view(np.uint32) >> SHIFT)


_HALF, _SINGLE = _first_normal(torch.float16), _first_normal(torch.float32)
# Bins up to which values are counted: the nonzero negative ones, those up to 0, the subnormal ones of both formats
# on either side, all.
_MARKS = (
    *(_MINUS_0 - 1, _PLUS_0),
    *(_MINUS_0 - _HALF, _PLUS_0 + _HALF - 1, _MINUS_0 - _SINGLE, _PLUS_0 + _SINGLE - 1),
    _NUM_FINITE - 1,
)

SIZE = len(_MARKS) + 5 * len(PERCENTS)


@torch.no_grad()
def condense(histogram: Tensor) -> Tensor:
    """What `Shapes` needs of histograms (n, 2048), on their device: int64 (n, 42)."""
    ascending, marks, percents, around = _constants(histogram.device)
    counts = histogram.index_select(1, ascending).long()
    cumulated = counts.cumsum(1)
    ranks = cumulated[:, -1:].double() * percents / 100
    places = torch.searchsorted(cumulated.double(), ranks).clamp(max=_NUM_FINITE - 1)
    nearby = (places[:, :, None] + around).clamp(0, _NUM_FINITE - 1).flatten(1)
    marked = cumulated.index_select(1, marks)
    return torch.cat([marked, places, cumulated.gather(1, places), counts.gather(1, nearby)], dim=1)


@torch.no_grad()
def coarsened(histogram: Tensor) -> Tensor:
    """`sonde.kernels.histograms.coarse` of histograms (n, 2048), on their device: (n, 257)."""
    kept = histogram.new_zeros(len(histogram), NUM_COARSE + 1)
    return kept.index_add_(1, _coarse_places(histogram.device), histogram)[:, :NUM_COARSE].contiguous()


@functools.cache
def _coarse_places(device: torch.device) -> Tensor:
    """The coarse bin of each bin; one behind the last for NaN and infinity."""
    smallest = (np.arange(NUM_BINS, dtype=np.uint32) << SHIFT).view(np.float32)  # in magnitude
    middle, is_finite = NUM_COARSE // 2, np.isfinite(smallest)
    towards = np.searchsorted(coarse_edges()[0][middle + 1 :], np.abs(smallest[is_finite]), side="right")
    places = np.full(NUM_BINS, NUM_COARSE)
    places[is_finite] = middle + np.where(np.signbit(smallest[is_finite]), -towards, towards)
    return uploaded(places, device)


@functools.cache
def _constants(device: torch.device) -> list[Tensor]:
    tables = _ASCENDING, np.array(_MARKS), np.array(PERCENTS, np.float64), np.array([-1, 0, 1])
    return [uploaded(table, device) for table in tables]


@dataclass(frozen=True, slots=True, eq=False)
class Shapes:
    """What condensed histograms tell. Values below 2⁻¹²⁸ in magnitude count as 0."""

    numbers: Float64
    """(n, 42), as `condense` gave them."""

    def positive(self) -> Float64:
        """Share of values above 0; NaN where nothing was counted."""
        _, up_to_0, *_, total = self._marks()
        with np.errstate(invalid="ignore"):
            return np.asarray((total - up_to_0) / total)

    def underflow(self, dtypes: list[torch.dtype]) -> Float64:
        """Share of subnormal numbers among the nonzero ones; NaN where there is none, or in float64."""
        negative, up_to_0, *small, total = self._marks()
        half, single = (negative - small[i] + small[i + 1] - up_to_0 for i in (0, 2))
        subnormal = np.where([dtype is torch.float16 for dtype in dtypes], half, single)
        nonzero = negative + total - up_to_0
        with np.errstate(invalid="ignore"):
            return np.where([dtype is torch.float64 for dtype in dtypes], np.nan, subnormal / nonzero)

    def percentiles(self, rows: Float64) -> Float64:
        """Exactly `sonde.kernels.histograms.percentiles` of the whole histograms: (n, 7)."""
        return percentiles(np.stack([_with_same_percentiles(one) for one in self.numbers]), rows)

    def _marks(self) -> Float64:
        return self.numbers[:, : len(_MARKS)].T


def _with_same_percentiles(numbers: Float64) -> npt.NDArray[np.int32]:
    """A histogram that agrees with the condensed one wherever percentiles are read: at each and at its neighbours.

    All counts in between two of those places stand in one bin there.
    """
    total, rest = numbers[len(_MARKS) - 1], numbers[len(_MARKS) :].astype(np.int64)
    num = len(PERCENTS)
    places, cumulated, nearby = rest[:num], rest[num : 2 * num], rest[2 * num :].reshape(num, 3)
    padded = np.zeros(_NUM_FINITE + 4, np.int64)  # two bins before and behind, of which those that exist are used
    for place, counts in zip(places, nearby, strict=True):
        padded[place + 1 : place + 4] = counts
    padded[1] = padded[_NUM_FINITE + 2] = 0  # no bins: what was read there is that of their neighbours
    for place, wanted in zip(places, cumulated, strict=True):
        padded[place] += wanted - padded[: place + 3].sum()
    padded[places[-1] + 4] += int(total) - padded.sum()
    histogram = np.zeros(NUM_BINS, np.int32)
    histogram[_ASCENDING] = padded[2:-2]
    return histogram
