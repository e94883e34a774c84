"""Memory for a short time and much at once, which the system gets back as soon as it is let go."""

import math
import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

# A page is mapped and cleared for each 4 KiB: next to nothing against what is done with arrays from this size on.
_MAPPED_BYTES = 64 << 10


def empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An array like `np.empty`, mapped on its own where it is large.

    The allocator of the C library keeps what a thread has ever used at once: a background that folds ever longer
    segments would make the process larger with each, for good (20 MB over the first 44,000 steps of a tiny model).

    Example:
        >>> empty((2, 3), np.float32).shape
        (2, 3)
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size < _MAPPED_BYTES or not hasattr(mmap, "MAP_ANONYMOUS"):  # Windows maps in another way
        return np.empty(shape, dtype)
    return np.ndarray(shape, dtype, mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
