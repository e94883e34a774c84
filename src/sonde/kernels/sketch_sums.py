"""The signed sums of `sonde.kernels.sketches` in numpy."""

from typing import final

import numpy as np
import numpy.typing as npt

from sonde.core.records import Float64, Int64
from sonde.kernels import sketches
from sonde.kernels.slabs import SLAB

_EIGHTS = sketches.LANES // 8  # of a row: what a turn moves
_LANES = np.arange(sketches.LANES, dtype=np.uint32)
_SIGN = np.uint32(1 << 31)
_TO_SIGN = np.uint32(1) << np.arange(sketches.ROWS - 1, -1, -1, dtype=np.uint32)  # moves bit `row` to the sign's place


@final
class SketchSums:
    """Sums of stretches of tensors.

    Args:
        longest: Values of the longest stretch.
    """

    def __init__(self, longest: int) -> None:
        # Reused from stretch to stretch: fresh memory of this size costs more than the arithmetic.
        num_groups = -(-longest // sketches.GROUP)
        self._eights = np.arange(num_groups * sketches.ROWS * _EIGHTS).reshape(-1, _EIGHTS)
        self._places = np.empty_like(self._eights)
        self._turned = np.empty((num_groups, sketches.ROWS, sketches.LANES), np.float32)
        self._flips = np.empty(self._turned.shape, np.uint32)

    def of_stretch(self, x: npt.NDArray[np.float32], seed: np.uint32, stretch: int) -> Float64:
        """The sums of one of the stretches of 65,536 values of a tensor, or of its last, which may be shorter."""
        num_groups = -(-len(x) // sketches.GROUP)
        num_rows = num_groups * sketches.ROWS
        if missing := num_rows * sketches.LANES - len(x):
            x = np.concatenate([x, np.zeros(missing, np.float32)])
        row = np.arange(num_rows, dtype=np.uint32) + np.uint32(stretch * (SLAB // sketches.LANES) & 0xFFFFFFFF)
        # Turned rows, moved by eights: what lands in column l is the row's value of lane l.
        turns = (sketches.turns(seed, row) >> np.uint32(3)).astype(np.int64)
        places = np.bitwise_xor(self._eights[:num_rows], turns[:, None], out=self._places[:num_rows])
        turned, flips = self._turned[:num_groups], self._flips[:num_groups]
        # Checking the places would make `take` copy what it finds.
        np.take(x.reshape(-1, 8), places.reshape(-1), axis=0, out=turned.reshape(-1, 8), mode="clip")
        words = sketches.hash32(
            (row[:: sketches.ROWS, None] >> np.uint32(5)) * np.uint32(sketches.LANES) + seed + _LANES
        )
        np.multiply(words[:, None, :], _TO_SIGN[:, None], out=flips)
        np.bitwise_and(flips, _SIGN, out=flips)
        bits = turned.view(np.uint32)
        np.bitwise_xor(bits, flips, out=bits)
        lanes = np.add.reduce(turned, axis=1).sum(axis=0, dtype=np.float64)
        sums: Float64 = lanes[: sketches.SIZE] + lanes[sketches.SIZE :]
        swap = sketches.swaps(np.array([seed]), stretch).astype(np.int64)
        return sums.take(np.arange(sketches.SIZE) ^ swap)

    @staticmethod
    def of_small(x: npt.NDArray[np.float32], starts: Int64, seeds: npt.NDArray[np.uint32]) -> Float64:
        """The sums of several tensors of one group each."""
        numbers = np.diff(starts, append=len(x))
        i = (np.arange(len(x)) - np.repeat(starts, numbers)).astype(np.uint32)
        seed, row = np.repeat(seeds, numbers), i >> np.uint32(9)
        lane = (i & np.uint32(sketches.LANES - 1)) ^ sketches.turns(seed, row)
        flips = (sketches.hash32(seed + lane) >> row) << np.uint32(31)
        signed = (x.view(np.uint32) ^ flips).view(np.float32)
        lane ^= np.repeat(sketches.swaps(seeds, 0), numbers)
        place = (lane & np.uint32(sketches.SIZE - 1)).astype(np.int64)
        place += np.repeat(np.arange(len(starts)) * sketches.SIZE, numbers)
        sums = np.bincount(place, weights=signed, minlength=len(starts) * sketches.SIZE)
        return sums.astype(np.float64, copy=False).reshape(-1, sketches.SIZE)
