"""The CPU path: all statistics of a list of tensors in one call of C."""

from array import array
from collections.abc import Callable, Sequence
from typing import final

import numpy as np
import torch
from torch import Tensor

from sonde.core.records import Float64
from sonde.kernels import histograms, sketches
from sonde.kernels.columns import NUM_COLUMNS
from sonde.kernels.copies import copied
from sonde.kernels.layouts import Layouts
from sonde.kernels.stats import Stats

_KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2, torch.float64: 3}  # as statistics.c numbers them
_SHARED_BYTES = 4 << 20  # about 0.3 ms; starting a thread takes 0.02 ms


@final
class NativeStats:
    """Statistics of lists of CPU tensors that lie as `layouts` says.

    More than 4 MiB are shared between as many threads as torch uses, which end with the call. The result does not
    depend on their number.

    Args:
        layouts: How the tensors lie; every call is checked against it, since C reads whatever it is told to.
        ids: A number for each tensor, which picks its sketch's signs.
        entry: One of `library.load`.
    """

    def __init__(self, layouts: Layouts, ids: Sequence[int], entry: Callable[..., int]) -> None:
        self._layouts, self._entry = layouts, entry
        self._numels = np.array(layouts.numels, np.int64)
        self._kinds = np.array([_KINDS[dtype] for dtype in layouts.dtypes], np.int32)
        self._seeds = sketches.seeds(ids)
        # Asking numpy for an address costs as much as measuring a small tensor; asking an `array` costs a tenth.
        self._described = self._numels.ctypes.data, self._kinds.ctypes.data, self._seeds.ctypes.data
        sizes = (n * dtype.itemsize for n, dtype in zip(layouts.numels, layouts.dtypes, strict=True))
        self._is_shared = sum(sizes) >= _SHARED_BYTES
        self._rows_bytes = 8 * NUM_COLUMNS * len(layouts)
        self._empty = bytes(self._rows_bytes + 8 * len(layouts))

    def __call__(self, new: Sequence[Tensor], old: Sequence[Tensor] | None, *, histogram: bool, sketch: bool) -> Stats:
        n = len(self._layouts)
        # What was copied must live until C has read it.
        arranged = self._layouts.arrange(new)
        before = None if old is None else self._layouts.arrange(old)
        others = None if before is None else array("q", map(Tensor.data_ptr, before))
        counts = torch.from_numpy(np.empty((n, histograms.NUM_BINS), np.int32)) if histogram else None
        sums = torch.from_numpy(np.empty((n, sketches.SIZE), np.float32)) if sketch else None
        found = self._call(
            arranged,
            None if others is None else others.buffer_info()[0],
            None if counts is None else counts.data_ptr(),
            None if sums is None else sums.data_ptr(),
        )
        rows, norms = apart(found)
        return Stats(torch.from_numpy(rows), counts, sums, torch.from_numpy(norms))

    def vector(self, tensors: Sequence[Tensor]) -> Float64 | None:
        """What `apart` takes apart, of tensors that lie exactly as others did before; None where that is not sure."""
        return self._call(tensors, None, None, None) if self._layouts.guard.confirms(tensors) else None

    def _call(self, tensors: Sequence[Tensor], others: int | None, counts: int | None, sums: int | None) -> Float64:
        addresses, found = array("q", map(Tensor.data_ptr, tensors)), array("d", self._empty)
        address = found.buffer_info()[0]
        missing = self._entry(
            len(addresses),
            addresses.buffer_info()[0],
            others,
            *self._described,
            address,
            address + self._rows_bytes,
            counts,
            sums,
            torch.get_num_threads() if self._is_shared else 1,
        )
        if missing:
            raise ValueError(f"tensor {missing - 1} has no memory: pass the plain tensor that it wraps.")
        return np.frombuffer(found)

    def copy(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        return copied(tensors)


def apart(vector: Float64) -> tuple[Float64, Float64]:
    """The rows of some tensors, and their norms, which stand behind them."""
    num_rows = len(vector) // (NUM_COLUMNS + 1)
    return vector[: -num_rows or None].reshape(-1, NUM_COLUMNS), vector[num_rows * NUM_COLUMNS :]
