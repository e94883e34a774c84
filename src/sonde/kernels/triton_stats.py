"""The statistics of many tensors in two to five launches on a GPU, without ever waiting for it."""

from collections.abc import Sequence
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from sonde.kernels import histograms, reference, sketches, triton_kernels
from sonde.kernels.block_map import Launch, block_map
from sonde.kernels.columns import NUM_COLUMNS
from sonde.kernels.layouts import Layouts
from sonde.kernels.pointer_table import PointerTable
from sonde.kernels.stats import Stats
from sonde.kernels.triton_kernels import fold_counts, fold_rows, fold_sums, measure_chunks, tl

CHUNK = 65_536
_ROWS = 4  # of a tile; with 8, fewer programs fit on a core
_WARPS = 4  # of a row: 4 values a thread


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
        assert chunk % (_ROWS * sketches.LANES) == 0
        self._layouts, self._ids, self._chunk = layouts, ids, chunk
        self._double = [i for i, dtype in enumerate(layouts.dtypes) if dtype is torch.float64]
        self._launches, chunks, spans, self._num_copies = block_map(layouts, chunk)
        self._num_chunks = len(chunks)
        skips = [histograms.skip(numel) for numel in layouts.numels]
        about = np.stack([layouts.numels, sketches.seeds(ids).astype(np.int64), skips], axis=1)
        self._about, self._chunks, self._spans = (
            torch.from_numpy(table).to(layouts.device) for table in (about, chunks, spans)
        )
        self._pointers = PointerTable(len(layouts), layouts.device)
        self._pairs = PointerTable(2 * len(layouts), layouts.device)
        self._compiled: dict[tuple[Any, ...], Any] = {}

    def __call__(self, new: Sequence[Tensor], old: Sequence[Tensor] | None, *, histogram: bool, sketch: bool) -> Stats:
        device = self._layouts.device
        with torch.no_grad():
            if device.type == "cuda" and device.index != torch.cuda.current_device():
                with torch.cuda.device(device):
                    return self._measure(new, old, histogram=histogram, sketch=sketch)
            return self._measure(new, old, histogram=histogram, sketch=sketch)

    def _measure(self, new: Sequence[Tensor], old: Sequence[Tensor] | None, *, histogram: bool, sketch: bool) -> Stats:
        n, device = len(self._layouts), self._layouts.device
        # Copies that `arrange` made must outlive the launches; the allocator then keeps their memory in stream order.
        arranged = self._layouts.arrange(new)
        others = [] if old is None else self._layouts.arrange(old)
        addresses = np.array(list(map(Tensor.data_ptr, arranged + others)), dtype=np.int64)
        pointers = (self._pointers if old is None else self._pairs).follow(addresses)
        aligned = int(np.bitwise_or.reduce(addresses)) % 16 == 0
        rows = torch.empty(n, NUM_COLUMNS, dtype=torch.float64, device=device)
        partials = torch.empty(triton_kernels.NUM_PARTIALS, self._num_chunks, device=device)
        sums = torch.empty(self._num_chunks, sketches.SIZE, device=device) if sketch else None
        counts = (
            torch.zeros(self._num_copies, histograms.NUM_BINS, dtype=torch.int32, device=device) if histogram else None
        )
        for launch in self._launches:
            self._launch(
                measure_chunks,
                (launch.num_chunks, 1, 1),
                pointers,
                self._about,
                self._chunks,
                partials,
                partials if sums is None else sums,
                self._about if counts is None else counts,
                launch.first_chunk,
                self._num_chunks,
                n,
                warps=_WARPS,
                constants=self._constants(launch, aligned, sketch, histogram, old is not None),
            )
        stats = self._fold(rows, partials, sums, counts)
        if self._double:
            self._measure_doubles(arranged, others, stats)
        return stats

    def _constants(
        self, launch: Launch, aligned: bool, sketch: bool, histogram: bool, difference: bool
    ) -> tuple[Any, ...]:
        vector = sketches.LANES // (32 * _WARPS) if aligned else 1  # values a load
        return _triton_type(launch.dtype), vector, self._chunk, _ROWS, sketch, histogram, difference

    def _fold(self, rows: Tensor, partials: Tensor, sums: Tensor | None, counts: Tensor | None) -> Stats:
        n = len(rows)
        histogram = sketch = None
        self._launch(fold_rows, (n, 1, 1), partials, self._spans, rows, self._num_chunks, warps=4, constants=(256,))
        if sums is not None:
            sketch = torch.empty(n, sketches.SIZE, device=rows.device)
            self._launch(fold_sums, (n, 8, 1), sums, self._spans, sketch, warps=4, constants=(128, 32))
        if counts is not None:
            histogram = torch.empty(n, histograms.NUM_BINS, dtype=torch.int32, device=rows.device)
            self._launch(fold_counts, (n, 4, 1), counts, self._spans, histogram, warps=4, constants=(512,))
        return Stats(rows, histogram, sketch)

    def _launch(
        self, kernel: Any, grid: tuple[int, int, int], *arguments: Any, warps: int, constants: tuple[Any, ...]
    ) -> None:
        # Triton looks at every argument of every launch to find the variant that fits. Here the constants tell it: the
        # arguments are always aligned memory of torch's and plain numbers.
        key = kernel, constants
        if compiled := self._compiled.get(key):
            compiled[grid](*arguments, *constants)
        else:
            self._compiled[key] = kernel[grid](*arguments, *constants, num_warps=warps)  # None when interpreted

    def _measure_doubles(self, new: Sequence[Tensor], old: Sequence[Tensor], stats: Stats) -> None:
        for i in self._double:
            tensor = reference.difference(new[i], old[i]) if old else new[i]
            stats.rows[i] = reference.row(tensor)
            if stats.histogram is not None:
                stats.histogram[i] = reference.histogram(tensor)
            if stats.sketch is not None:
                stats.sketch[i] = reference.sketch(tensor, self._ids[i])


def _triton_type(dtype: torch.dtype) -> Any:
    return {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}[dtype]
