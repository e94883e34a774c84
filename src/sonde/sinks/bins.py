"""The bins of our histograms: signed magnitudes, two to an octave, from 2⁻⁴⁸ to 2¹⁶."""

import numpy as np
import numpy.typing as npt

from sonde.core.frames import Float32
from sonde.core.records import Float64

# Written down here a second time: who makes histograms needs torch, who reads them does not. A test compares the two.
_LOWEST, _HIGHEST = -48, 16
_OCTAVES = 2.0 ** np.arange(_LOWEST, _HIGHEST + 1)
_MAGNITUDES = np.stack([_OCTAVES, 1.5 * _OCTAVES], axis=1).reshape(-1)[:-1]
EDGES: Float64 = np.concatenate([-_MAGNITUDES[::-1], _MAGNITUDES])
"""One more than there are bins; the bin in the middle holds zeros, the outermost also what is larger."""

NUM_BINS = len(EDGES) - 1


def occupied(counts: Float32) -> tuple[Float64, Float64]:
    """The counts from the first bin that has any to the last, and their edges, one more; nothing where all are empty.

    Example:
        >>> counts = np.zeros(NUM_BINS, np.float32)
        >>> counts[[128, 225]] = 7, 2  # zeros, and values from 1 to 1.5
        >>> found, edges = occupied(counts)
        >>> found[[0, -1]].tolist(), edges[-2:].tolist()
        ([7.0, 2.0], [1.0, 1.5])
    """
    some: npt.NDArray[np.intp] = np.flatnonzero(counts)
    if not len(some):
        return np.empty(0), np.empty(0)
    first, last = some[0], some[-1]
    return counts[first : last + 1].astype(np.float64), EDGES[first : last + 2]
