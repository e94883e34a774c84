"""Which program of a launch measures what: every tensor is cut into chunks, the chunks of one dtype are one launch."""

from typing import NamedTuple

import numpy as np
import torch

from sonde.core.records import Int64
from sonde.kernels.layouts import Layouts

_COPIES = 8  # of a tensor's histogram: so many programs may count into it without meeting


class Launch(NamedTuple):
    """The chunks of all tensors of one dtype."""

    dtype: torch.dtype
    first_chunk: int
    num_chunks: int


class BlockMap(NamedTuple):
    """The chunks of a list of tensors. Empty ones have one, those of float64 none."""

    launches: list[Launch]
    chunks: Int64
    """(chunks, 3): tensor, first value, copy of the tensor's histogram."""
    spans: Int64
    """(tensors, 4): first and last + 1 of its chunks, and of the copies of its histogram."""
    num_copies: int

    def turn(self, slot: int, num_slots: int) -> "BlockMap":
        """The chunks of every so many tensors, those from number `slot` on, numbered by themselves."""
        chosen = self.chunks[:, 0] % num_slots == slot
        ends = np.concatenate([[0], np.cumsum(chosen)])
        spans = np.concatenate([ends[self.spans[:, :2]], self.spans[:, 2:]], axis=1)
        bounds = [
            (launch.dtype, *ends[[launch.first_chunk, launch.first_chunk + launch.num_chunks]].tolist())
            for launch in self.launches
        ]
        launches = [Launch(dtype, begin, end - begin) for dtype, begin, end in bounds if end > begin]
        return BlockMap(launches, self.chunks[chosen], spans, self.num_copies)


def block_map(layouts: Layouts, chunk: int) -> BlockMap:
    """The map of tensors that lie so, in chunks of so many values."""
    numel = np.array(layouts.numels, dtype=np.int64)
    names = np.array([str(dtype) for dtype in layouts.dtypes])
    order = np.argsort(names, kind="stable")
    num_chunks = np.maximum(-(-numel // chunk), 1)
    num_chunks[[dtype is torch.float64 for dtype in layouts.dtypes]] = 0
    num_copies = np.minimum(num_chunks, _COPIES)
    spans = np.empty((len(numel), 4), np.int64)
    for column, number in ((0, num_chunks), (2, num_copies)):
        ends = np.cumsum(number[order])
        spans[order, column], spans[order, column + 1] = ends - number[order], ends
    tensor = np.repeat(order, num_chunks[order])
    index = np.arange(len(tensor)) - spans[tensor, 0]  # of a chunk in its tensor
    copy = spans[tensor, 2] + index % np.maximum(num_copies[tensor], 1)
    launches = []
    for dtype in sorted(set(layouts.dtypes), key=str):
        members = (names == str(dtype)) & (num_chunks > 0)
        if members.any():
            first, last = int(spans[members, 0].min()), int(spans[members, 1].max())
            launches.append(Launch(dtype, first, last - first))
    return BlockMap(launches, np.stack([tensor, index * chunk, copy], axis=1), spans, int(num_copies.sum()))
