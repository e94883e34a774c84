"""The statistics of many tensors in one launch a dtype on a GPU, and one for by-products, without ever waiting."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor

from sonde.kernels import copies, histograms, reference, sketches, triton_launches
from sonde.kernels.block_map import block_map
from sonde.kernels.columns import NUM_COLUMNS
from sonde.kernels.copies import Copies
from sonde.kernels.layouts import Layouts
from sonde.kernels.pointer_table import PointerTable
from sonde.kernels.stats import Stats
from sonde.kernels.triton_launches import CHUNK, ROWS, Pass, Scratch, Turns, Variant
from sonde.kernels.uploads import uploaded

if TYPE_CHECKING:
    from sonde.kernels.bound_kernel import BoundKernel

_ROWS_AHEAD = 16


@final
class _Workspace:
    """Memory on the device that calls write and read in the order of one stream, and the launches bound to it."""

    def __init__(self, numels: Sequence[int], scratch: Scratch, device: torch.device) -> None:
        self.new, self.old, self.scratch = PointerTable(numels, device), PointerTable(numels, device), scratch
        self.passes: dict[Variant, Pass] = {}
        self.copiers: dict[bool, list[BoundKernel]] = {}
        self._rows: list[Tensor] = []

    def fresh_rows(self) -> Tensor:
        """Memory for rows that nothing else uses. Asking the allocator at every call would take twice as long."""
        if not self._rows:
            n, device = len(self.new.table), self.new.table.device
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
        self._layouts, self._ids, self._device = layouts, ids, layouts.device
        self._double = [i for i, dtype in enumerate(layouts.dtypes) if dtype is torch.float64]
        found = block_map(layouts, chunk)
        self._num_copies = found.num_copies
        self._offsets, self._copied_bytes = copies.places(layouts)
        with torch.inference_mode(False):  # what is made inside of it could not be used outside
            self._about = uploaded(triton_launches.about_tensors(layouts.numels, ids, self._offsets), self._device)
            self._chunks = triton_launches.chunks_on(self._device, found, chunk)
        self._workspace: _Workspace | None = None
        self._stream = -1

    def __call__(self, new: Sequence[Tensor], old: Sequence[Tensor] | None, *, histogram: bool, sketch: bool) -> Stats:
        with self._on_device():
            return self._measure(new, old, histogram, sketch)

    def copy(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        if self._double or not self._layouts.plain:
            return copies.copied(tensors)
        with self._on_device():
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
        variant = Variant(aligned, sketch, histogram, old is not None, memory is not None)
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
            work.copiers[aligned] = triton_launches.bind_copies(self._chunks, work.new.table, self._about, aligned)
        for kernel in work.copiers[aligned]:
            kernel(stream, memory)
        del arranged  # not before the launches
        return Copies(memory, self._layouts, self._offsets)

    def _on_device(self) -> AbstractContextManager[Any]:
        is_current = self._device.type != "cuda" or self._device.index == torch._C._cuda_getDevice()
        return nullcontext() if is_current else torch.cuda.device(self._device)

    def _settle(self) -> tuple[int, _Workspace]:
        """The current stream, and the memory to use there."""
        stream = torch._C._cuda_getCurrentRawStream(self._device.index) if self._device.type == "cuda" else 0
        # Another stream gets memory of its own: what was launched on the last may still use the old one, which goes
        # back to the allocator of that stream. A graph is captured on a stream that exists for the capture alone; its
        # replays are to use the memory from before.
        if self._workspace is None or (stream != self._stream and not torch.cuda.is_current_stream_capturing()):
            with torch.inference_mode(False):
                scratch = Scratch(len(self._layouts), self._chunks.num, self._num_copies, self._device)
                self._workspace = _Workspace(self._layouts.numels, scratch, self._device)
            self._stream = stream
        return stream, self._workspace

    def _follow(self, table: PointerTable, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        arranged = self._layouts.arrange(tensors)
        table.follow(list(map(Tensor.data_ptr, arranged)))
        return arranged

    def _bind(self, work: _Workspace, variant: Variant) -> Pass:
        tensors = self._chunks, work.scratch, self._about, Turns(), variant
        return Pass(
            triton_launches.bind_measure(*tensors, old_pointers=work.old.table), triton_launches.bind_fold(*tensors)
        )

    def _measure_doubles(self, new: Sequence[Tensor], old: Sequence[Tensor], stats: Stats) -> None:
        with torch.no_grad():
            for i in self._double:
                tensor = reference.difference(new[i], old[i]) if old else new[i]
                stats.rows[i] = reference.row(tensor)
                if stats.histogram is not None:
                    stats.histogram[i] = reference.histogram(tensor)
                if stats.sketch is not None:
                    stats.sketch[i] = reference.sketch(tensor, self._ids[i])
