"""Runs kernels by Triton's interpreter.

Reads pickled questions from its input, writes pickled answers: (tensors, old, ids, copy) is answered by `Stats` as a
tuple, two sketches by their products.
"""

import pickle
import sys
import warnings
from typing import Any

import torch
from torch import Tensor

from sonde.kernels.bound_kernel import BoundKernel
from sonde.kernels.copies import Copies
from sonde.kernels.layouts import Layouts
from sonde.kernels.triton_folds import multiply_sketches
from sonde.kernels.triton_stats import TritonStats

# The interpreter computes in numpy, which warns where a GPU does not.
warnings.simplefilter("ignore", RuntimeWarning)


def stats(tensors: list[Tensor], old: list[Tensor] | None, ids: list[int] | None, copy: bool) -> tuple[Any, ...]:
    # Small chunks, so that small tensors have several; few, since each takes a tenth of a second.
    measure = TritonStats(Layouts(tensors), range(len(tensors)) if ids is None else ids, chunk=16_384)
    if not copy or old is None:
        return tuple(measure(tensors, old, histogram=True, sketch=True))
    copies = measure.copy(old)
    assert isinstance(copies, Copies)
    return tuple(measure(tensors, copies, histogram=True, sketch=True))


def products(now: Tensor, before: Tensor) -> Tensor:
    out = torch.empty(len(now), 3, dtype=torch.float64)
    BoundKernel(multiply_sketches, (len(now), 1, 1), lasting=(), constants=())(0, now, before, out)
    return out


def main() -> None:
    while True:
        try:
            question = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(products(*question) if len(question) == 2 else stats(*question), sys.stdout.buffer)
        sys.stdout.buffer.flush()


main()
