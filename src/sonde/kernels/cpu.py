"""The statistics of many tensors on a CPU: a dozen numpy calls a slab, all in the calling thread."""

from collections.abc import Sequence
from typing import final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sonde.core.records import Float64, Int64
from sonde.kernels import histograms, sketches
from sonde.kernels.columns import NUM_COLUMNS, Column
from sonde.kernels.copies import copied
from sonde.kernels.layouts import Layouts
from sonde.kernels.moments import FirstLook, Values, careful_rows, fold
from sonde.kernels.sketch_sums import SketchSums
from sonde.kernels.slabs import SLAB, Reader, Slab, part_of, slabs_of
from sonde.kernels.stats import Stats

# Histograms of so many small tensors at a time: 2,048 counters of 8 bytes each.
_COUNTED_TOGETHER = 64


@final
class CpuStats:
    """Statistics of lists of CPU tensors that lie as `layouts` says."""

    def __init__(self, layouts: Layouts, ids: Sequence[int]) -> None:
        self._layouts = layouts
        self._seeds = sketches.seeds(ids)
        self._slabs = list(slabs_of(layouts))
        self._longest = max((slab.size for slab in self._slabs), default=0)
        # The stretches of a tensor follow each other.
        owners = np.array([tensor for slab in self._slabs for tensor in slab.tensors], dtype=np.int64)
        self._begins = np.flatnonzero(np.diff(owners, prepend=-1))
        self._owners = owners[self._begins]
        ends = [np.append(slab.starts[1:], slab.size) for slab in self._slabs]
        lengths = [end - slab.starts for slab, end in zip(self._slabs, ends, strict=True)]
        self._numbers = np.concatenate(lengths) if lengths else np.zeros(0, np.int64)

    def __call__(self, new: Sequence[Tensor], old: Sequence[Tensor] | None, *, histogram: bool, sketch: bool) -> Stats:
        n = len(self._layouts)
        counts = np.zeros((n, histograms.NUM_BINS), np.int32) if histogram else None
        sums = np.zeros((n, sketches.SIZE)) if sketch else None
        with torch.no_grad(), np.errstate(all="ignore"):
            read = Reader(self._layouts, new, old, self._longest)
            first = FirstLook(len(self._numbers), self._longest)
            sketched = SketchSums(self._longest if sketch else 0)
            for slab in self._slabs:
                x = read(slab)
                first.look(x, slab.starts, slab.at)
                if counts is not None:
                    self._add_counts(counts, slab, x)
                if sums is not None:
                    self._add_sums(sums, slab, x, sketched, finite=first.all_finite(slab.at))
            return Stats(
                torch.from_numpy(self._rows(first, read)),
                None if counts is None else torch.from_numpy(counts),
                None if sums is None else torch.from_numpy(sums.astype(np.float32)),
            )

    def copy(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        return copied(tensors)

    def _rows(self, first: FirstLook, read: Reader) -> Float64:
        stretches, doubtful = first.rows(self._numbers)
        for slab in self._slabs if doubtful.any() else ():
            if (some := doubtful[slab.at]).any():
                part = part_of(slab, some, self._numbers[slab.at])
                stretches[slab.at][some] = careful_rows(read(part), part.starts)
        rows = np.zeros((len(self._layouts), NUM_COLUMNS))
        rows[:, Column.MIN], rows[:, Column.MAX] = np.inf, -np.inf
        if len(stretches):
            rows[self._owners] = fold(stretches, self._begins)
        return rows

    def _add_counts(self, counts: npt.NDArray[np.int32], slab: Slab, x: Values) -> None:
        skip = histograms.skip(self._layouts.numels[slab.tensors[0]])
        if skip:  # only large tensors skip, and they have slabs of their own
            runs = histograms.counted_runs(slab.first // histograms.RUN, -(-slab.size // histograms.RUN), skip)
            x = x[np.repeat(runs, histograms.RUN)[: slab.size]]
        bins = (x.astype(np.float32, copy=False).view(np.uint32) >> np.uint32(histograms.SHIFT)).astype(np.int64)
        if len(slab.tensors) == 1:
            counts[slab.tensors[0]] += _only_finite(np.bincount(bins, minlength=histograms.NUM_BINS))[0]
            return
        ends = np.append(slab.starts[1:], slab.size)
        for i in range(0, len(slab.tensors), _COUNTED_TOGETHER):
            some = slab.tensors[i : i + _COUNTED_TOGETHER]
            begin, end = slab.starts[i : i + len(some)], ends[i : i + len(some)]
            shift = np.repeat(np.arange(len(some)) * histograms.NUM_BINS, end - begin)
            part = bins[begin[0] : end[-1]] + shift
            counts[some] = _only_finite(np.bincount(part, minlength=len(some) * histograms.NUM_BINS))

    def _add_sums(self, sums: Float64, slab: Slab, x: Values, sketched: SketchSums, *, finite: bool) -> None:
        single = x.astype(np.float32, copy=False)
        if not finite:
            single = np.where(np.isfinite(single), single, np.float32(0))
        if len(slab.tensors) == 1:
            tensor = slab.tensors[0]
            sums[tensor] += sketched.of_stretch(single, self._seeds[tensor], slab.first // SLAB)
        else:
            sums[slab.tensors] = sketched.of_small(single, slab.starts, self._seeds[slab.tensors])


def _only_finite(counts: Int64) -> npt.NDArray[np.int32]:
    by_sign = counts.reshape(-1, 2, histograms.NUM_BINS // 2)
    by_sign[:, :, -4:] = 0  # the exponent of NaN and infinity
    return by_sign.reshape(-1, histograms.NUM_BINS).astype(np.int32)
