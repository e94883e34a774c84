"""Count, mean, spread and extremes of many stretches of flat arrays, in numpy.

A stretch is a tensor, or the part of one that lies in a slab. The first look at a slab sums in float32, pairwise, and
leaves everything else for the end, when all stretches of all slabs are handled together: a call costs more than the
arithmetic of a small stretch. Stretches for which float32 was not good enough are then looked at again in float64.
"""

from typing import final

import numpy as np
import numpy.typing as npt

from sonde.core.records import Float64, Int64
from sonde.kernels.columns import NUM_COLUMNS, Column

Values = npt.NDArray[np.float32] | npt.NDArray[np.float64]

# float32 sums of squares are trusted where the largest magnitude lies between these (squares neither overflow in a
# slab of 2¹⁶ values, nor matter where they underflow) and the mean does not exceed two standard deviations: M2 is then
# a difference of which a fifth is left, and pairwise sums are good to 28 roundings at worst, 8e-6 of it.
_TRUSTED_ABSMAX = (1e-13, 1e15)
_TRUSTED_SHARE_OF_MEAN = 0.8


@final
class FirstLook:
    """Extremes, zeros and float32 sums of stretches.

    Args:
        num_stretches: In all slabs together.
        longest_slab: In values.
    """

    def __init__(self, num_stretches: int, longest_slab: int) -> None:
        self._low, self._high, self._total, self._squares = np.full((4, num_stretches), np.nan, np.float32)
        self._zeros = np.zeros(num_stretches, np.int64)
        # Reused from slab to slab: fresh memory of this size costs a page fault every 4 KiB.
        self._products = np.empty(longest_slab, np.float32)
        self._mask = np.empty(longest_slab, np.bool_)

    def look(self, x: Values, starts: Int64, at: slice) -> None:
        """Take a slab in.

        Args:
            x: The slab, flat; one of float64 is left for the second look.
            starts: Where its stretches begin, ascending from 0; each ends where the next begins. None is empty.
            at: The stretches' places among those of all slabs.
        """
        if x.dtype != np.float32:
            return
        np.minimum.reduceat(x, starts, out=self._low[at])
        np.maximum.reduceat(x, starts, out=self._high[at])
        np.add.reduceat(x, starts, out=self._total[at])
        products = self._products[: len(x)]
        np.multiply(x, x, out=products)
        np.add.reduceat(products, starts, out=self._squares[at])
        zero = self._mask[: len(x)]
        np.equal(x, 0, out=zero)
        if np.count_nonzero(zero):  # by far the usual answer is none, and counting by stretches is slow
            self._zeros[at] = _count(zero, starts)

    def all_finite(self, at: slice) -> bool:
        """Whether stretches that were taken in hold finite values only; False of those that were not."""
        return bool(np.isfinite(self._low[at]).all() and np.isfinite(self._high[at]).all())

    def rows(self, numbers: Int64) -> tuple[Float64, npt.NDArray[np.bool_]]:
        """A row (see `Column`) for each stretch of `numbers` values, and which rows are not to be trusted.

        Untrusted are those that were not looked at, too.
        """
        low, high, total, squares = (x.astype(np.float64) for x in (self._low, self._high, self._total, self._squares))
        mean = total / numbers
        of_mean = total * mean
        rows = np.stack([numbers, np.zeros_like(mean), self._zeros, mean, squares - of_mean, low, high], axis=1)
        absmax = np.maximum(np.abs(low), np.abs(high))  # NaN where there is one
        trusted = (absmax > _TRUSTED_ABSMAX[0]) & (absmax < _TRUSTED_ABSMAX[1])
        trusted &= of_mean <= _TRUSTED_SHARE_OF_MEAN * squares
        trusted |= absmax == 0
        return rows, ~trusted


def careful_rows(x: Values, starts: Int64) -> Float64:
    """A row for each stretch of a slab, in float64, over the finite values."""
    numbers = np.diff(starts, append=len(x))
    finite = np.isfinite(x)
    deviation = x.astype(np.float64)
    rows = np.empty((len(starts), NUM_COLUMNS))
    rows[:, Column.ZEROS] = _count(x == 0, starts)
    if finite.all():
        rows[:, Column.MIN] = np.minimum.reduceat(deviation, starts)
        rows[:, Column.MAX] = np.maximum.reduceat(deviation, starts)
        count = numbers
    else:
        rows[:, Column.MIN] = np.minimum.reduceat(np.where(finite, deviation, np.inf), starts)
        rows[:, Column.MAX] = np.maximum.reduceat(np.where(finite, deviation, -np.inf), starts)
        count = _count(finite, starts)
        deviation[~finite] = 0
    pivot = np.add.reduceat(deviation, starts) / np.maximum(count, 1)
    deviation -= np.repeat(pivot, numbers)
    deviation[~finite] = 0
    rest = np.add.reduceat(deviation, starts)
    deviation *= deviation
    shift = rest / np.maximum(count, 1)  # what rounding left of the mean: 1e-16 of it, much where the spread is tiny
    rows[:, Column.COUNT], rows[:, Column.NONFINITE] = count, numbers - count
    rows[:, Column.MEAN] = pivot + shift
    rows[:, Column.M2] = np.maximum(np.add.reduceat(deviation, starts) - rest * shift, 0)
    return rows


def fold(rows: Float64, starts: Int64) -> Float64:
    """The rows of tensors from those of their stretches, by Chan's formula.

    Args:
        rows: Of the stretches, those of a tensor one after another.
        starts: The first stretch of each tensor.
    """
    count = np.add.reduceat(rows[:, Column.COUNT], starts)
    mean = np.add.reduceat(rows[:, Column.COUNT] * rows[:, Column.MEAN], starts) / np.maximum(count, 1)
    shift = rows[:, Column.MEAN] - np.repeat(mean, np.diff(starts, append=len(rows)))
    folded = np.add.reduceat(rows, starts)
    folded[:, Column.MEAN] = mean
    folded[:, Column.M2] += np.add.reduceat(rows[:, Column.COUNT] * shift**2, starts)
    folded[:, Column.MIN] = np.minimum.reduceat(rows[:, Column.MIN], starts)
    folded[:, Column.MAX] = np.maximum.reduceat(rows[:, Column.MAX], starts)
    return folded


def _count(mask: npt.NDArray[np.bool_], starts: Int64) -> Int64:
    return np.add.reduceat(mask.view(np.int8), starts, dtype=np.int64)
