"""Slabs: flat stretches of memory that fit the cache, and how tensors are read as such.

A tensor of 16,384 values or more is read where it lies, slab by slab. Smaller ones are laid side by side into slabs of
their own, so that ten thousand of them cost a few hundred calls and not ten thousand times a dozen.
"""

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sonde.core.records import Int64
from sonde.kernels.layouts import Layouts, flat
from sonde.kernels.moments import Values

SLAB = 1 << 16  # values; as float32 with the squares beside them half of a 1 MiB cache; a stretch of the sketch
_SMALL = 1 << 14  # below, copying a tensor costs less than a dozen calls

# Fewer tensors of a kind do not make up for a slab of their own.
_ALIKE = 32

# torch hands conversions of 32,768 values or more to its threads; waiting for a busy pool costs more than it saves.
_CONVERTED_TOGETHER = 1 << 14

_NATIVE = frozenset({torch.float32, torch.float64})


class Slab(NamedTuple):
    """What a slab holds: part of one tensor from value `first` on, or all of several small tensors."""

    tensors: list[int]
    first: int
    size: int
    starts: Int64
    """Where each of the stretches begins."""
    at: slice
    """The stretches' places among those of all slabs."""
    alike: bool = False
    """Whether the tensors differ in their first dimension only."""


@final
class Reader:
    """Hands out slabs of the tensors, or of their differences, as flat float32 or float64 arrays.

    What it hands out is not to be written to, and lasts until the next slab.
    """

    def __init__(self, layouts: Layouts, new: Sequence[Tensor], old: Sequence[Tensor] | None, longest: int) -> None:
        self._new = _Side(layouts, new, longest)
        self._old = None if old is None else _Side(layouts, old, longest)
        self._difference = np.empty(longest if self._old else 0, np.float32)

    def __call__(self, slab: Slab) -> Values:
        x = self._new.read(slab)
        if self._old is None:
            return x
        y = self._old.read(slab)
        return np.subtract(x, y, out=self._difference[: slab.size] if x.dtype == np.float32 else None)


@final
class _Side:
    """Slabs of one list of tensors."""

    def __init__(self, layouts: Layouts, tensors: Sequence[Tensor], longest: int) -> None:
        self._tensors = layouts.arrange(tensors)
        self._row_major = layouts.row_major
        self._current = -1, torch.empty(0)
        self._room = torch.empty(0 if _NATIVE.issuperset(layouts.dtypes) else longest)

    def read(self, slab: Slab) -> Values:
        if len(slab.tensors) > 1:
            values = self._side_by_side(slab)
        else:
            if self._current[0] != slab.tensors[0]:
                self._current = slab.tensors[0], flat(self._tensors[slab.tensors[0]])
            values = self._current[1][slab.first : slab.first + slab.size]
        if values.dtype not in _NATIVE:
            for i in range(0, slab.size, _CONVERTED_TOGETHER):
                self._room[i : min(i + _CONVERTED_TOGETHER, slab.size)] = values[i : i + _CONVERTED_TOGETHER]
            values = self._room[: slab.size]
        array: Values = values.numpy()
        return array

    def _side_by_side(self, slab: Slab) -> Tensor:
        tensors = itemgetter(*slab.tensors)(self._tensors)
        if slab.alike:
            return torch.cat(tensors).view(-1)
        tensors = [x if self._row_major[i] else flat(x) for i, x in zip(slab.tensors, tensors, strict=True)]
        # In C++ all the way: flattening each in Python costs 2 µs a tensor, this 0.7, `cat` alone 0.3.
        flattened: Tensor = torch._C._nn.flatten_dense_tensors(tensors)
        return flattened


def slabs_of(layouts: Layouts) -> Iterator[Slab]:
    small = []
    at = 0
    for i, numel in enumerate(layouts.numels):
        if numel >= _SMALL:
            for first in range(0, numel, SLAB):
                yield Slab([i], first, min(SLAB, numel - first), np.zeros(1, np.int64), slice(at, at + 1))
                at += 1
        elif numel:
            small.append(i)
    for alike, group in _packs(layouts, small):
        ends = np.cumsum([layouts.numels[i] for i in group])
        begin = 0
        while begin < len(group):
            base = int(ends[begin - 1]) if begin else 0
            end = max(int(np.searchsorted(ends, base + SLAB, side="right")), begin + 1)
            starts = np.concatenate([[0], ends[begin : end - 1] - base])
            yield Slab(group[begin:end], 0, int(ends[end - 1]) - base, starts, slice(at, at + end - begin), alike)
            at += end - begin
            begin = end


def _packs(layouts: Layouts, small: list[int]) -> Iterator[tuple[bool, list[int]]]:
    """Small tensors of one dtype each; those of many that differ in their first dimension only by themselves."""
    groups: dict[tuple[torch.dtype, torch.Size | None], list[int]] = {}
    for i in small:
        groups.setdefault((layouts.dtypes[i], layouts.trailing_shape(i)), []).append(i)
    rest: dict[torch.dtype, list[int]] = {}
    for (dtype, shape), group in groups.items():
        if shape is not None and len(group) >= _ALIKE:
            yield True, group
        else:
            rest.setdefault(dtype, []).extend(group)
    for group in rest.values():
        yield False, group


def part_of(slab: Slab, some: npt.NDArray[np.bool_], numbers: Int64) -> Slab:
    """A slab of some of the stretches."""
    if len(slab.tensors) == 1:
        return slab
    tensors = [tensor for tensor, wanted in zip(slab.tensors, some, strict=True) if wanted]
    ends = np.cumsum(numbers[some])
    return slab._replace(tensors=tensors, size=int(ends[-1]), starts=ends - numbers[some])
