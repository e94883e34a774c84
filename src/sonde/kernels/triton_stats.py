"""The statistics of many tensors in one launch a dtype on a GPU, and one for by-products, without ever waiting."""

from collections.abc import Sequence
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from sonde.kernels import copies, histograms, reference, sketches, triton_kernels
from sonde.kernels.block_map import block_map
from sonde.kernels.bound_kernel import BoundKernel
from sonde.kernels.columns import NUM_COLUMNS
from sonde.kernels.copies import Copies
from sonde.kernels.layouts import Layouts
from sonde.kernels.pointer_table import PointerTable
from sonde.kernels.stats import Stats
from sonde.kernels.triton_kernels import copy_chunks, fold_chunks, measure_chunks, tl
from sonde.kernels.uploads import uploaded

CHUNK = 65_536
ROWS = 4  # of a tile; with 8, fewer programs fit on a core
WARPS = 4  # of a row: 4 values a thread
_ROWS_AHEAD = 16
PART = 8_192  # values of a chunk that a program copies
_ALL = 1, 1, 0  # rows of every tensor; histograms of every one, from the first on


class _Variant(NamedTuple):
    """What a pass does, and how it may read."""

    sketch: bool
    histogram: bool
    difference: bool
    copies: bool
    vector: int


class _Pass(NamedTuple):
    """The launches of a variant: one for each dtype and, where there are by-products, one that folds them."""

    measure: list[BoundKernel]
    fold: BoundKernel | None


@final
class _Workspace:
    """Memory on the device that calls write and read in the order of one stream, and the launches bound to it."""

    def __init__(self, num_tensors: int, num_chunks: int, device: torch.device) -> None:
        self.new, self.old = PointerTable(num_tensors, device), PointerTable(num_tensors, device)
        self.arrived = torch.zeros(num_tensors, dtype=torch.int64, device=device)
        self.partials = torch.empty(triton_kernels.NUM_PARTIALS, num_chunks, device=device)
        self.sums: Tensor | None = None
        self.counts: Tensor | None = None
        self.passes: dict[_Variant, _Pass] = {}
        self.copiers: dict[bool, list[BoundKernel]] = {}
        self._rows: list[Tensor] = []

    def fresh_rows(self) -> Tensor:
        """Memory for rows that nothing else uses. Asking the allocator at every call would take twice as long."""
        if not self._rows:
            n, device = len(self.arrived), self.arrived.device
            with torch.inference_mode(False):  # what is made inside of it could not be used outside
                # Of an even number each, so that each begins at a multiple of 16 bytes.
                many = torch.empty((_ROWS_AHEAD, n + n % 2, NUM_COLUMNS), dtype=torch.float64, device=device)
                self._rows = list(many[:, :n].unbind(0))
        return self._rows.pop()


@final
class TritonStats:
    """Statistics of lists of CUDA tensors that lie as `layouts` says.

    Args:
        layouts: Of the tensors. Those of float64 are measured by the reference.
        ids: Their numbers, for the sketch.
        chunk: Values a program: a power of two from 2,048 to 65,536.
    """

    def __init__(self, layouts: Layouts, ids: Sequence[int], *, chunk: int = CHUNK) -> None:
        assert CHUNK % chunk == 0
        assert chunk % (ROWS * sketches.LANES) == 0
        self._layouts, self._ids, self._chunk, self._device = layouts, ids, chunk, layouts.device
        self._double = [i for i, dtype in enumerate(layouts.dtypes) if dtype is torch.float64]
        self._launches, chunks, spans, self._num_copies = block_map(layouts, chunk)
        self._num_chunks = len(chunks)
        self._offsets, self._copied_bytes = copies.places(layouts)
        skips = [histograms.skip(numel) for numel in layouts.numels]
        about = np.stack([layouts.numels, sketches.seeds(ids).astype(np.int64), skips, self._offsets], axis=1)
        with torch.inference_mode(False):  # what is made inside of it could not be used outside
            self._about, self._chunks, self._spans = (uploaded(table, self._device) for table in (about, chunks, spans))
        self._workspace: _Workspace | None = None
        self._stream = -1

    def __call__(self, new: Sequence[Tensor], old: Sequence[Tensor] | None, *, histogram: bool, sketch: bool) -> Stats:
        if self._is_current():
            return self._measure(new, old, histogram, sketch)
        with torch.cuda.device(self._device):
            return self._measure(new, old, histogram, sketch)

    def copy(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        if self._double or not self._layouts.plain:
            return copies.copied(tensors)
        if self._is_current():
            return self._copy(tensors)
        with torch.cuda.device(self._device):
            return self._copy(tensors)

    def _measure(self, new: Sequence[Tensor], old: Sequence[Tensor] | None, histogram: bool, sketch: bool) -> Stats:
        n, device = len(self._layouts), self._device
        stream, work = self._settle()
        # Copies that `arrange` made must outlive the launches; the allocator then keeps their memory in stream order.
        arranged = self._follow(work.new, new)
        aligned = work.new.aligned
        others: Sequence[Tensor] = ()
        memory: Tensor | None = None
        if isinstance(old, Copies) and old.layouts is self._layouts:
            memory = old.memory
        elif old is not None:
            others = self._follow(work.old, old)
            aligned = aligned and work.old.aligned
        variant = _Variant(sketch, histogram, old is not None, memory is not None, values_a_load(aligned))
        launches = work.passes.get(variant)
        if launches is None:
            launches = work.passes[variant] = self._bind(work, variant)
        rows = work.fresh_rows()
        sums = torch.empty((n, sketches.SIZE), device=device) if sketch else None
        counts = torch.empty((n, histograms.NUM_BINS), dtype=torch.int32, device=device) if histogram else None
        for kernel in launches.measure:
            kernel(stream, rows, self._about if memory is None else memory, work.new.table)
        if launches.fold is not None:
            launches.fold(stream, rows, rows if sums is None else sums, rows if counts is None else counts)
        stats = Stats(rows, counts, sums)
        if self._double:
            self._measure_doubles(arranged, others, stats)
        return stats

    def _copy(self, tensors: Sequence[Tensor]) -> Copies:
        stream, work = self._settle()
        arranged = self._follow(work.new, tensors)
        memory = torch.empty(self._copied_bytes, dtype=torch.uint8, device=self._device)
        aligned = work.new.aligned
        if aligned not in work.copiers:
            work.copiers[aligned] = self._bind_copiers(work, aligned)
        for kernel in work.copiers[aligned]:
            kernel(stream, memory)
        del arranged  # not before the launches
        return Copies(memory, self._layouts, self._offsets)

    def _is_current(self) -> bool:
        return self._device.type != "cuda" or self._device.index == torch._C._cuda_getDevice()

    def _settle(self) -> tuple[int, _Workspace]:
        """The current stream, and the memory to use there."""
        stream = torch._C._cuda_getCurrentRawStream(self._device.index) if self._device.type == "cuda" else 0
        # Another stream gets memory of its own: what was launched on the last may still use the old one, which goes
        # back to the allocator of that stream. A graph is captured on a stream that exists for the capture alone; its
        # replays are to use the memory from before.
        if self._workspace is None or (stream != self._stream and not torch.cuda.is_current_stream_capturing()):
            with torch.inference_mode(False):
                self._workspace = _Workspace(len(self._layouts), self._num_chunks, self._device)
            self._stream = stream
        return stream, self._workspace

    def _follow(self, table: PointerTable, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        arranged = self._layouts.arrange(tensors)
        addresses = list(map(Tensor.data_ptr, arranged))
        if addresses != table.addresses:
            if 0 in addresses:
                self._check_memory(addresses)
            table.follow(addresses)
        return arranged

    def _check_memory(self, addresses: list[int]) -> None:
        for i, (address, numel) in enumerate(zip(addresses, self._layouts.numels, strict=True)):
            if numel and not address:
                raise ValueError(f"tensor {i} has {numel} values but no memory: its storage was freed.")

    def _bind(self, work: _Workspace, variant: _Variant) -> _Pass:
        if variant.sketch and work.sums is None:
            work.sums = torch.empty(self._num_chunks, sketches.SIZE, device=self._device)
        if variant.histogram and work.counts is None:  # `fold_chunks` leaves zeros for the next call
            work.counts = torch.zeros(self._num_copies, histograms.NUM_BINS, dtype=torch.int32, device=self._device)
        sums = work.sums if variant.sketch and work.sums is not None else work.partials
        counts = work.counts if variant.histogram and work.counts is not None else self._about
        measure = [
            BoundKernel(
                measure_chunks,
                (launch.num_chunks, 1, 1),
                lasting=(
                    work.old.table,
                    self._about,
                    self._chunks,
                    self._spans,
                    work.arrived,
                    work.partials,
                    sums,
                    counts,
                    launch.first_chunk,
                    self._num_chunks,
                    *_ALL,
                ),
                constants=(
                    triton_type(launch.dtype),
                    variant.vector,
                    self._chunk,
                    ROWS,
                    variant.sketch,
                    variant.histogram,
                    variant.difference,
                    variant.copies,
                ),
                num_warps=WARPS,
            )
            for launch in self._launches
        ]
        parts = triton_kernels.fold_parts(sketch=variant.sketch, histogram=variant.histogram)
        fold = BoundKernel(
            fold_chunks,
            (len(self._layouts), parts, 1),
            lasting=(
                *(work.partials, sums, counts, self._spans),
                *(work.partials,) * 4,  # for products, of which there are none
                self._num_chunks,
                *_ALL[1:],
            ),
            constants=(variant.sketch, variant.histogram, 0),
        )
        return _Pass(measure, fold if parts else None)

    def _bind_copiers(self, work: _Workspace, aligned: bool) -> list[BoundKernel]:
        return [
            BoundKernel(
                copy_chunks,
                (launch.num_chunks, -(-self._chunk // PART), 1),
                lasting=(work.new.table, self._about, self._chunks, launch.first_chunk),
                constants=(triton_type(launch.dtype), aligned, self._chunk, PART),
            )
            for launch in self._launches
        ]

    def _measure_doubles(self, new: Sequence[Tensor], old: Sequence[Tensor], stats: Stats) -> None:
        with torch.no_grad():
            for i in self._double:
                tensor = reference.difference(new[i], old[i]) if old else new[i]
                stats.rows[i] = reference.row(tensor)
                if stats.histogram is not None:
                    stats.histogram[i] = reference.histogram(tensor)
                if stats.sketch is not None:
                    stats.sketch[i] = reference.sketch(tensor, self._ids[i])


def values_a_load(aligned: bool) -> int:
    """How many values a thread loads at once."""
    return sketches.LANES // (32 * WARPS) if aligned else 1


def triton_type(dtype: torch.dtype) -> Any:
    """What Triton calls it."""
    return {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}[dtype]
