"""Sketches: 256 signed sums of a tensor, from which norms, inner products and cosines follow without the tensor.

Value i of the tensor with number t is added, with a random sign, to one of 256 sums (all arithmetic in uint32):

    seed = hash32(t · 0x9E3779B9),   row = i >> 9
    lane = (i & 511) ^ turn,         turn = ((row · 0x9E3779B1 + seed) >> 23) & 504
    sign = -1 where bit row & 31 of hash32(seed + 512·(row >> 5) + lane) is set, else +1
    sum  = (lane ^ swap) & 255,      swap = hash32(seed + 0x85EBCA6B·((i >> 16) + 1)) & 7

so a sketch is linear, and the same projection for the same t at every step: sketches of one tensor at two steps may be
subtracted, and compared. Values that are not finite in float32 are left out. Sums are kept in float32 and may overflow
above 1e36.

For sketches of one tensor, over random signs, the inner product is unbiased with a standard deviation of
sqrt((1 + c²)/256) of the product of the norms, c being the cosine; the norm is off by 1/sqrt(2·256) = 4%, the cosine
by (1 - c²)/16. That holds while the energy is spread over the sums. Turn and swap are there because of matrices whose
width is a multiple of 256: a column that outweighs all others would otherwise lie in a single sum, and its cosine be
±1. It now has 32 effective sums, times the number of stretches of 65,536 values up to 8. Turns are multiples of 8, so
that a GPU reads turned rows as fast as straight ones.

References:
    Charikar, Chen, Farach-Colton: Finding frequent items in data streams. ICALP 2002.
    Weinberger, Dasgupta, Langford, Smola, Attenberg: Feature hashing for large scale multitask learning. ICML 2009.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

SIZE = 256
LANES = 512


def hash32(x: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """A bijection of 32-bit words that looks random.

    Example:
        >>> hash32(np.arange(3, dtype=np.uint32)).tolist()
        [0, 1753845952, 3507691905]

    References:
        Wellons: Prospecting for hash functions, 2018 (lowbias32).
    """
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


def seeds(ids: Sequence[int]) -> npt.NDArray[np.uint32]:
    """The seed of each tensor by its number."""
    numbers = np.array([number & 0xFFFFFFFF for number in ids], dtype=np.uint32)
    return hash32(numbers * np.uint32(0x9E3779B9))
