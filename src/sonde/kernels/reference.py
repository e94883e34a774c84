"""The definition of every statistic: one tensor at a time, in float64, in plain torch.

Slow and obvious. The fast paths are tested against it, and it is what runs where no fast path can: on a CPU without the
compiled kernel, on a GPU without Triton, and for float64 tensors on one with it. It never waits for the device.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from sonde.kernels import histograms, sketches
from sonde.kernels.columns import NUM_COLUMNS, Column
from sonde.kernels.layouts import flat, memory_order
from sonde.kernels.stats import Stats

_WORD = 0xFFFFFFFF


def values(tensor: Tensor) -> Tensor:
    """The values of a tensor, flat, in the order in which they are numbered (see `sonde.kernels.layouts`)."""
    tensor = tensor.detach()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return flat(tensor if tensor.numel() and memory_order(tensor) is not None else tensor.contiguous())


def difference(new: Tensor, old: Tensor) -> Tensor:
    """The difference new - old, in float32 or, for float64 tensors, in float64, numbered as `new` is."""
    if old.stride() != new.stride():
        old = torch.empty_like(new).copy_(old)
    precision = torch.promote_types(values(new).dtype, torch.float32)
    return values(new).to(precision) - values(old).to(precision)


def row(tensor: Tensor) -> Tensor:
    """The statistics of `Column`, float64 (7,)."""
    x = values(tensor).to(torch.float64)
    if x.numel() == 0:
        nothing = x.new_zeros(NUM_COLUMNS)
        nothing[Column.MIN].fill_(torch.inf)  # `nothing[…] = inf` would wait for the device
        nothing[Column.MAX].fill_(-torch.inf)
        return nothing
    finite = x.isfinite()
    count = finite.sum().to(torch.float64)
    mean = torch.where(finite, x, 0).sum() / count.clamp(min=1)
    deviation = torch.where(finite, x - mean, 0)
    return torch.stack(
        [
            count,
            x.numel() - count,
            (x == 0).sum().to(torch.float64),
            mean,
            deviation.square().sum(),
            torch.where(finite, x, torch.inf).min(),
            torch.where(finite, x, -torch.inf).max(),
        ]
    )


def histogram(tensor: Tensor) -> Tensor:
    """The counts of `sonde.kernels.histograms`, int32 (2048,)."""
    x = values(tensor).to(torch.float32)
    skip = histograms.skip(x.numel())
    run = torch.arange(x.numel(), device=x.device) // histograms.RUN
    chosen = _hash32((run >> skip) & _WORD) % 2**skip
    counted = x.isfinite() & (run % 2**skip == chosen)
    bins = (x.view(torch.int32).to(torch.int64) & _WORD) >> histograms.SHIFT
    counts = torch.zeros(histograms.NUM_BINS, dtype=torch.int64, device=x.device)
    return counts.scatter_add_(0, bins, counted.to(torch.int64)).to(torch.int32)


def signs(i: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """The sign (-1 or +1) and the sum (0 to 255) of the values with the numbers `i`, int64, of tensor `number`."""
    seed = int(sketches.seeds([number])[0])
    row = i >> 9
    turn = (((row * 0x9E3779B1 + seed) & _WORD) >> 23) & 504
    lane = (i & 511) ^ turn
    bit = (_hash32((seed + 512 * (row >> 5) + lane) & _WORD) >> (row & 31)) & 1
    swap = _hash32((seed + 0x85EBCA6B * ((i >> 16) + 1)) & _WORD) & 7
    return 1 - 2 * bit, (lane ^ swap) & 255


def sketch(tensor: Tensor, number: int) -> Tensor:
    """The sums of `sonde.kernels.sketches`, in float64 (256,)."""
    x = values(tensor).to(torch.float32)
    sign, place = signs(torch.arange(x.numel(), device=x.device), number)
    x = torch.where(x.isfinite(), x, 0).to(torch.float64)
    return torch.zeros(sketches.SIZE, dtype=torch.float64, device=x.device).scatter_add_(0, place, sign * x)


def tensor_stats(
    tensors: Sequence[Tensor],
    *,
    ids: Sequence[int] | None = None,
    with_histogram: bool = False,
    with_sketch: bool = False,
) -> Stats:
    """The statistics of every tensor."""
    device = tensors[0].device if tensors else None
    numbers = range(len(tensors)) if ids is None else ids
    rows = torch.empty(len(tensors), NUM_COLUMNS, dtype=torch.float64, device=device)
    counts = torch.empty(len(tensors), histograms.NUM_BINS, dtype=torch.int32, device=device)
    sums = torch.empty(len(tensors), sketches.SIZE, dtype=torch.float32, device=device)
    for i, tensor in enumerate(tensors):
        rows[i] = row(tensor)
        if with_histogram:
            counts[i] = histogram(tensor)
        if with_sketch:
            sums[i] = sketch(tensor, numbers[i])
    return Stats(rows, counts if with_histogram else None, sums if with_sketch else None)


def _hash32(x: Tensor) -> Tensor:
    """`sketches.hash32` in int64, of which each product keeps the lower 32 bits."""
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & _WORD
    x = ((x ^ (x >> 15)) * 0x846CA68B) & _WORD
    return x ^ (x >> 16)
