"""Tensors of which every process holds a piece (DTensor, as FSDP2 makes them): the piece, and the whole's statistics.

What is replicated (DDP; a DTensor that is replicated over a dimension of its mesh) is measured on every process and
never added up. Of a tensor that is split over ranks each rank measures its own piece, and a row of statistics, 56
bytes, goes to the other ranks instead of the tensor.

Sketches number the values of a piece from 0, so that those of pieces do not add up to one of the whole: cosines
between steps are not measured of tensors that are split.
"""

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from sonde.kernels.columns import Column
from sonde.kernels.merging import merge_rows


def local_part(tensor: Tensor) -> Tensor:
    """The piece of a tensor that this process holds, without a copy or a message to others; any other tensor as it is.

    Of a DTensor that is replicated it is the whole; of one that is still to be added up over ranks (`trouble` says so),
    this rank's addend. It may be empty.
    """
    return local_parts([tensor])[0]


def local_parts(tensors: Sequence[Tensor]) -> list[Tensor]:
    """`local_part` of many, at a microsecond each; where nobody uses DTensors, for nothing."""
    kind = _dtensor()
    if not kind:
        return list(tensors)
    with torch.no_grad():
        return [tensor.to_local() if isinstance(tensor, kind) else tensor for tensor in tensors]


def is_sharded(tensor: Tensor) -> bool:
    """Whether several processes hold a piece of the tensor each."""
    return bool(groups(tensor))


def groups(tensor: Any) -> list[Any]:
    """The process groups over which a tensor is split, one a dimension of its mesh; none where it is whole here.

    A mesh's dimensions over which it is replicated (HSDP) and those of a single rank are left out. With two (FSDP and
    tensor parallelism) each rank's piece is a part of a part.
    """
    if not isinstance(tensor, _dtensor()) or tensor.device_mesh.get_coordinate() is None:  # a mesh of other ranks
        return []
    mesh = tensor.device_mesh
    return [
        mesh.get_group(dimension)
        for dimension, placement in enumerate(tensor.placements)
        # FSDP on top of tensor parallelism has a kind of its own for which `is_shard` is false.
        if not placement.is_replicate() and not placement.is_partial() and mesh.size(dimension) > 1
    ]


def trouble(gradient: Any, parameter: Any) -> str | None:
    """Why a gradient's statistics do not follow from its pieces', None where they do.

    It may have to be added up over ranks first (`Partial`): that takes a message as large as the gradient. Or it may be
    split otherwise than its parameter, by whose pieces ranks know what to exchange.
    """
    if not isinstance(gradient, _dtensor()):
        return None
    if any(placement.is_partial() for placement in gradient.placements):
        return "its gradient is still to be added up over ranks, which would take a message of its size"
    split = (gradient.device_mesh, gradient.placements)
    if not isinstance(parameter, _dtensor()) or split != (parameter.device_mesh, parameter.placements):
        return "its gradient is split over ranks in another way than itself"
    return None


class Gathered(NamedTuple):
    """What all ranks know after a `Shards.gather`, on the rows' device."""

    rows: Tensor
    """float64 (n, 7), of whole tensors."""
    word: Tensor
    """float64 (), the largest of all ranks' words."""


@final
class Shards:
    """Which tensors of a list are split, over which ranks, and how their statistics become those of the wholes.

    A gather is one all-gather for each process group that any of the tensors is split over: usually one; two with FSDP
    and tensor parallelism. All ranks of a group must call it at the same place in their programs, with lists of equally
    split tensors, in the same order. On a GPU it is queued on the current stream and nothing waits for it.

    Where nothing is split there is no message at all.

    Args:
        tensors: In the order of the rows that will come; a tensor may come several times (its weight, its update).
            None is kept.

    Example:
        >>> shards = Shards([torch.ones(3)])  # nothing is split: nothing happens
        >>> shards.gather(torch.ones(1, 7).double(), word=2.0).word
        tensor(2., dtype=torch.float64)
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        members: dict[str, tuple[Any, list[int]]] = {}
        for place, tensor in enumerate(tensors):
            for group in groups(tensor):
                members.setdefault(group.group_name, (group, []))[1].append(place)
        self._rounds: list[tuple[Any, Tensor | None]] = []
        """Process groups, and which of the tensors are split over each; all where None."""
        for group, places in members.values():
            device = local_part(tensors[places[0]]).device
            index = None if len(places) == len(tensors) else torch.tensor(places, device=device)
            self._rounds.append((group, index))

    @torch.no_grad()
    def gather(self, rows: Tensor, *, word: float = 0.0) -> Gathered:
        """The rows of the whole tensors from those of this rank's pieces.

        Args:
            rows: float64 (n, 7); those of tensors that are not split come back as they are. A tensor that has no
                value on this rank has a row of `absent_rows`; where it has none on any rank, COUNT and NONFINITE come
                back as 0.
            word: A number that goes along.
        """
        said = rows.new_full((1, rows.shape[1]), word)
        for group, index in self._rounds:
            mine = torch.cat([rows if index is None else rows.index_select(0, index), said])
            parts = mine.new_empty(group.size(), *mine.shape)
            _all_gather(parts.view(-1, mine.shape[1]), mine, group)
            merged = merge_rows(parts)
            rows = merged[:-1] if index is None else rows.index_copy(0, index, merged[:-1])
            # With several rounds it has then been around the rows and columns of a mesh: everywhere.
            said = merged[-1:]
        return Gathered(rows, said[0, Column.MAX])

    @torch.no_grad()
    def add_up(self, counts: Tensor) -> Tensor:
        """The histograms of the whole tensors from those of this rank's pieces, as `all_counts` gives them.

        Added up on the way, one message a group: gathered first, they would take thousands of bytes a tensor and rank.

        Args:
            counts: int64 (n, bins); zeros of a tensor that has no value on this rank.
        """
        for group, index in self._rounds:
            mine = counts.clone() if index is None else counts.index_select(0, index)
            torch.distributed.all_reduce(mine, group=group)
            counts = mine if index is None else counts.index_copy(0, index, mine)
        return counts


def _all_gather(output: Tensor, mine: Tensor, group: Any) -> None:
    # Since torch 2.13 the second name is deprecated.
    single: Any = getattr(torch.distributed, "all_gather_single", None)
    (single or torch.distributed.all_gather_into_tensor)(output, mine, group=group)


def _dtensor() -> Any:
    """The class, or nothing that `isinstance` could find."""
    # Importing it takes half a second; where nobody has, nobody has made one.
    module: Any = sys.modules.get("torch.distributed.tensor")
    return module.DTensor if module else ()
