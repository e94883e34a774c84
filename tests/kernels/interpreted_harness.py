"""Measures by Triton's interpreter: reads pickled (tensors, old, ids) from its input, writes pickled `Stats`."""

import pickle
import sys
import warnings

from sonde.kernels.layouts import Layouts
from sonde.kernels.triton_stats import TritonStats

# The interpreter computes in numpy, which warns where a GPU does not.
warnings.simplefilter("ignore", RuntimeWarning)


def main() -> None:
    while True:
        try:
            tensors, old, ids = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        # Small chunks, so that small tensors have several; few, since each takes a tenth of a second.
        measure = TritonStats(Layouts(tensors), range(len(tensors)) if ids is None else ids, chunk=16_384)
        pickle.dump(tuple(measure(tensors, old, histogram=True, sketch=True)), sys.stdout.buffer)
        sys.stdout.buffer.flush()


main()
