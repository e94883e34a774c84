"""Copies of the tensors of a list in one piece of memory, made and forgotten within a step."""

from collections.abc import Sequence
from typing import final, overload

import numpy as np
from torch import Tensor

from sonde.core.records import Int64
from sonde.kernels.layouts import Layouts

_ALIGNED = 16  # bytes: what a kernel reads at once


@final
class Copies(Sequence[Tensor]):
    """The copies, each a view of the one piece of memory, in the strides that were prepared for.

    Args:
        memory: uint8, as large as `places` says.
        layouts: Of the tensors, which are read in the dtypes that they have.
        offsets: Where each begins, as `places` says.
    """

    def __init__(self, memory: Tensor, layouts: Layouts, offsets: Int64) -> None:
        self.memory, self.layouts = memory, layouts
        self._offsets = offsets

    def __len__(self) -> int:
        return len(self.layouts)

    @overload
    def __getitem__(self, i: int) -> Tensor: ...
    @overload
    def __getitem__(self, i: slice) -> list[Tensor]: ...
    def __getitem__(self, i: int | slice) -> Tensor | list[Tensor]:
        which = range(len(self))[i]
        return self._at(which) if isinstance(which, int) else [self._at(j) for j in which]

    def _at(self, i: int) -> Tensor:
        dtype, begin = self.layouts.dtypes[i], int(self._offsets[i])
        end = begin + self.layouts.numels[i] * dtype.itemsize
        return self.layouts.shaped(i, self.memory[begin:end].view(dtype))


def places(layouts: Layouts) -> tuple[Int64, int]:
    """Where each copy begins, in bytes, and the size of all."""
    sizes = np.array([n * dtype.itemsize for n, dtype in zip(layouts.numels, layouts.dtypes, strict=True)], np.int64)
    ends = np.cumsum(-(-sizes // _ALIGNED) * _ALIGNED)
    return np.concatenate([[0], ends[:-1]]).astype(np.int64), int(ends[-1]) if len(ends) else 0


def copied(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Copies one by one, each in the strides of its tensor where that is dense."""
    return [tensor.detach().clone() for tensor in tensors]
