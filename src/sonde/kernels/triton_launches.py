"""What is launched over the chunks of a list of tensors: the kernels, bound to the memory that they work in."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from sonde.core.records import Int64
from sonde.kernels import histograms, sketches
from sonde.kernels.block_map import BlockMap, Launch
from sonde.kernels.bound_kernel import BoundKernel
from sonde.kernels.triton_folds import NUM_PARTIALS, fold_chunks, fold_parts
from sonde.kernels.triton_kernels import copy_chunks, measure_chunks
from sonde.kernels.triton_language import tl
from sonde.kernels.uploads import uploaded

CHUNK = 65_536
ROWS = 4  # of a tile; with 8, fewer programs fit on a core
WARPS = 4  # of a row: 4 values a thread
PART = 8_192  # values of a chunk that a program copies


class Chunks(NamedTuple):
    """The chunks of a list of tensors, on the device."""

    launches: Sequence[Launch]
    table: Tensor
    spans: Tensor
    num: int
    size: int
    """Values a chunk."""


class Turns(NamedTuple):
    """Of which tensors there are rows, and histograms: every so many, those from some first one on."""

    row_every: int = 1
    count_every: int = 1
    count_first: int = 0


class Variant(NamedTuple):
    """What a pass does, and how it may read."""

    aligned: bool
    """Whether all memory begins at a multiple of 16 bytes: a thread then loads several values at once."""
    sketch: bool = False
    histogram: bool = False
    difference: bool = False
    copies: bool = False
    """Whether the difference is that to copies in one piece of memory."""


class Pass(NamedTuple):
    """The launches that measure, one for each dtype, and the one that folds by-products, where there are any."""

    measure: list[BoundKernel]
    fold: BoundKernel | None


@final
class Scratch:
    """Memory on the device that launches write and read in the order of one stream."""

    def __init__(self, num_tensors: int, num_chunks: int, num_copies: int, device: torch.device) -> None:
        self._num_copies, self._device = num_copies, device
        self.arrived = torch.zeros(num_tensors, dtype=torch.int64, device=device)
        self.partials = torch.empty(NUM_PARTIALS, num_chunks, device=device)

    def found(self, variant: Variant, nothing: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Partials, sums and counts of a variant; other memory in place of those that it has not."""
        sums, counts = self._sums if variant.sketch else self.partials, self._counts if variant.histogram else nothing
        return self.partials, sums, counts

    @functools.cached_property
    def _sums(self) -> Tensor:
        return torch.empty(self.partials.shape[1], sketches.SIZE, device=self._device)

    @functools.cached_property
    def _counts(self) -> Tensor:  # `fold_chunks` leaves zeros for the next call
        return torch.zeros(self._num_copies, histograms.NUM_BINS, dtype=torch.int32, device=self._device)


def chunks_on(device: torch.device, found: BlockMap, size: int = CHUNK) -> Chunks:
    """The chunks of a map, of so many values each."""
    return Chunks(
        found.launches, uploaded(found.chunks, device), uploaded(found.spans, device), len(found.chunks), size
    )


def about_tensors(numels: Sequence[int], ids: Sequence[int], offsets: Int64) -> Int64:
    """What kernels know of tensors, (tensors, 4): size, seed, which runs are counted, where the copy begins."""
    skips = [histograms.skip(numel) for numel in numels]
    return np.stack([np.array(numels, np.int64), sketches.seeds(ids).astype(np.int64), skips, offsets], axis=1)


def bind_measure(
    chunks: Chunks, scratch: Scratch, about: Tensor, turns: Turns, variant: Variant, old_pointers: Tensor | None = None
) -> list[BoundKernel]:
    """Kernels to be called with the rows, the memory of copies and the table of pointers."""
    old = about if old_pointers is None else old_pointers
    work = old, about, chunks.table, chunks.spans, scratch.arrived, *scratch.found(variant, about)
    vector = sketches.LANES // (32 * WARPS) if variant.aligned else 1  # values a thread loads at once
    return [
        BoundKernel(
            measure_chunks,
            (launch.num_chunks, 1, 1),
            lasting=(*work, launch.first_chunk, chunks.num, *turns),
            constants=(_type(launch), vector, chunks.size, ROWS, *variant[1:]),
            num_warps=WARPS,
        )
        for launch in chunks.launches
    ]


def bind_fold(
    chunks: Chunks,
    scratch: Scratch,
    about: Tensor,
    turns: Turns,
    variant: Variant,
    *,
    into: Sequence[Tensor] = (),
    products: int = 0,
    of_products: Sequence[Tensor] = (),
) -> BoundKernel | None:
    """The kernel that folds by-products, to be called with the rows and what `into` lacks; None where there are none.

    Args:
        chunks: Of the tensors, and
        scratch: the memory that they were measured in.
        about: The tensors.
        turns: Which of them have histograms.
        variant: What was measured.
        into: Where sketches and histograms go, at every call.
        products: Which products of sketches are wanted, see `fold_chunks`.
        of_products: Where these find what was before, and where they go.
    """
    parts = fold_parts(sketch=variant.sketch, histogram=variant.histogram)
    if not parts:
        return None
    found = *scratch.found(variant, about), chunks.spans, *(of_products or (scratch.partials,) * 4)
    constants = variant.sketch, variant.histogram, products if variant.sketch else 0
    lasting: list[Tensor | int] = [*into, *found, chunks.num, *turns[1:]]
    return BoundKernel(fold_chunks, (len(scratch.arrived), parts, 1), lasting=lasting, constants=constants)


def bind_copies(chunks: Chunks, pointers: Tensor, about: Tensor, aligned: bool) -> list[BoundKernel]:
    """Kernels to be called with the memory that copies go to."""
    return [
        BoundKernel(
            copy_chunks,
            (launch.num_chunks, -(-chunks.size // PART), 1),
            lasting=(pointers, about, chunks.table, launch.first_chunk),
            constants=(_type(launch), aligned, chunks.size, PART),
        )
        for launch in chunks.launches
    ]


def _type(launch: Launch) -> Any:
    """What Triton calls the dtype."""
    return {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}[launch.dtype]
