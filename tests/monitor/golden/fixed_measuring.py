"""Measuring that depends neither on which kernel is fast nor on when threads run."""

import contextlib
import importlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sonde.kernels import dispatch, reference
from sonde.kernels.columns import Column, finite_norm

_MOST_S = 60.0  # for the singular values of one small matrix: longer is a hang


@contextlib.contextmanager
def fixed_measuring() -> Iterator[None]:
    """Inside, statistics and norms come from the reference in plain torch, and spectra are known one step later."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with contextlib.ExitStack() as undo:
        undo.callback(torch.set_num_threads, num_threads)
        undo.callback(setattr, dispatch, "_choose", dispatch._choose)
        dispatch._choose = lambda device: ("torch", "golden rows")
        _take_norms_from_the_reference(undo)
        _wait_for_spectra(undo)
        yield


def _take_norms_from_the_reference(undo: contextlib.ExitStack) -> None:
    # `sonde.probes.norms` sums up in float32, in ways that depend on sizes and numbers of tensors. Norms that come from
    # `TensorStats` are sqrt(M2 + COUNT·MEAN²) of the reference's float64 rows, and NaN or infinite as the values are.
    # Both must be the same bits, so the former are replaced by the latter. Where `sonde.probes.norms` is gone, norms
    # are expected to come from `TensorStats`, which `_choose` has sent to the reference: there is nothing to replace.
    try:
        norms = importlib.import_module("sonde.probes.norms")
    except ModuleNotFoundError:
        return
    for name, fixed in (("Norms", ReferenceNorms), ("tensor_norms", reference_norms)):
        original = getattr(norms, name, None)
        for module in [m for place, m in sys.modules.items() if place.partition(".")[0] == "sonde"]:
            if original is not None and vars(module).get(name) is original:  # imported there by name
                undo.callback(setattr, module, name, original)
                setattr(module, name, fixed)


@torch.no_grad()
def reference_norms(tensors: Sequence[Tensor]) -> Tensor:
    """L2 norms in float64, one a tensor; NaN and infinite as they come."""
    rows = np.stack([reference.row(tensor).numpy() for tensor in tensors])
    norms = finite_norm(rows)
    for i in np.flatnonzero(rows[:, Column.NONFINITE]).tolist():
        norms[i] = float("nan") if reference.values(tensors[i]).isnan().any() else float("inf")
    return torch.from_numpy(norms)


class ReferenceNorms:
    """`reference_norms`, to be made and called as `sonde.probes.norms.Norms` is."""

    def __init__(self, like: Sequence[Tensor]) -> None: ...

    def __call__(self, tensors: Sequence[Tensor]) -> Tensor:
        return reference_norms(tensors)


def _wait_for_spectra(undo: contextlib.ExitStack) -> None:
    # Singular values are computed by a thread, one matrix at a time; which one is next depends on when the last was
    # done. Here it is done before the training goes on. Where this class looks different, say here how to wait for it.
    spectra = importlib.import_module("sonde.probes.spectra")
    bench = spectra._Bench
    begin: Callable[..., None] = bench.begin

    def begin_and_wait(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        deadline = time.monotonic() + _MOST_S
        while self._done is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the singular values of a small matrix took more than {_MOST_S:g} s")
            time.sleep(1e-4)

    undo.callback(setattr, bench, "begin", begin)
    bench.begin = begin_and_wait
