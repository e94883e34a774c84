"""The norms alone of many small tensors on a CPU: a multiplication and a sum a slab."""

from collections.abc import Sequence
from typing import final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sonde.core.records import Float64, Int64
from sonde.kernels.layouts import Layouts
from sonde.kernels.moments import Values
from sonde.kernels.slabs import Reader, slabs_of

# float32 sums of squares are trusted between these: no square overflows, and what is lost of those that underflow
# (1e-38 each, in a slab of 2¹⁶ values) does not matter.
_TRUSTED = (1e-26, 1e30)


@final
class CpuNorms:
    """L2 norms of lists of CPU tensors like those that it was made for, right to 1e-6.

    Summed up pairwise in float32, and again in float64 where the squares leave its range.

    Args:
        like: Tensors of the same shapes, strides and dtypes. None is kept.

    Example:
        >>> tensors = [torch.tensor([3.0, 4.0]), torch.tensor([3e30, 4e30]), torch.tensor([1.0, float("inf")])]
        >>> [f"{norm:.3g}" for norm in CpuNorms(tensors)(tensors).tolist()]
        ['5', '5e+30', 'inf']
    """

    def __init__(self, like: Sequence[Tensor]) -> None:
        self._layouts = Layouts(like)
        self._slabs = list(slabs_of(self._layouts))
        self._longest = max((slab.size for slab in self._slabs), default=0)
        # The stretches of a tensor follow each other.
        owners = np.array([tensor for slab in self._slabs for tensor in slab.tensors], dtype=np.int64)
        self._begins = np.flatnonzero(np.diff(owners, prepend=-1))
        self._owners = owners[self._begins]
        self._num_stretches = len(owners)

    def __call__(self, tensors: Sequence[Tensor]) -> Float64:
        """Their norms: 0 where a tensor is empty, NaN where a value is, else infinite where one is.

        Raises:
            ValueError: they are not as many, or of other shapes, dtypes or device than prepared for.
        """
        norms = np.zeros(len(self._layouts))
        with torch.no_grad(), np.errstate(all="ignore"):
            read = Reader(self._layouts, tensors, None, self._longest)
            squares = np.empty(self._num_stretches)
            products = np.empty(self._longest, np.float32)
            for slab in self._slabs:
                squares[slab.at] = _sums_of_squares(read(slab), slab.starts, products)
            if len(squares):
                norms[self._owners] = np.sqrt(np.add.reduceat(squares, self._begins))
        return norms


def _sums_of_squares(x: Values, starts: Int64, room: npt.NDArray[np.float32]) -> Values:
    if x.dtype == np.float32:
        quick: Values = np.add.reduceat(np.multiply(x, x, out=room[: len(x)]), starts)
        if _TRUSTED[0] < quick.min() and quick.max() < _TRUSTED[1]:
            return quick
    wide = x.astype(np.float64)
    return np.add.reduceat(np.multiply(wide, wide, out=wide), starts)
