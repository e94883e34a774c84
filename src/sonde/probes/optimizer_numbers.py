"""What was measured of an optimiser's parameters in one iteration: numbers that are still on their device."""

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from sonde.core.records import Float64
from sonde.kernels.native.native_stats import apart as rows_and_norms


class Part(enum.IntEnum):  # of numbers: those of another kind are hashed in Python, a dozen times a step
    """What a vector of numbers is."""

    GRADIENTS = enum.auto()
    """Rows of statistics of gradients."""
    NORMS = enum.auto()
    """Norms of gradients alone."""
    NORMS_APPLIED = enum.auto()
    """Norms of gradients as the optimiser got them, where its clips do not tell."""
    CLIP = enum.auto()
    """The norm that a clip found."""
    SCALE = enum.auto()
    """The scale of a gradient scaler."""
    CLIP_SCALE = enum.auto()
    """The same, where gradients were read before it unscaled them."""
    GRAD_SCALE = enum.auto()
    """The scale that a fused optimiser divides by."""
    HISTOGRAM = enum.auto()
    """Counts of gradients."""
    EXTREMES = enum.auto()
    """Rows of the gradients of a histogram, where those of all are not there."""
    GRADIENT_PRODUCTS = enum.auto()
    """Inner products of the sketches of two gradients that follow each other."""
    TRAJECTORY = enum.auto()
    """The sketch of all gradients together."""
    BEFORE = enum.auto()
    """Norms of weights before an update."""
    UPDATES = enum.auto()
    """Rows of updates."""
    WEIGHTS = enum.auto()
    """Rows of weights."""
    WEIGHT_HISTOGRAM = enum.auto()
    """Counts of weights."""
    UPDATE_PRODUCTS = enum.auto()
    """Inner products of the sketches of two updates."""


ROWS = frozenset({Part.GRADIENTS, Part.EXTREMES, Part.UPDATES, Part.WEIGHTS})
NORMS = frozenset({Part.NORMS, Part.NORMS_APPLIED, Part.BEFORE})
# What every step must have. The rest may be left behind where there is no room.
_ESSENTIAL = frozenset(
    {Part.GRADIENTS, Part.NORMS, Part.NORMS_APPLIED, Part.CLIP, Part.SCALE, Part.CLIP_SCALE, Part.GRAD_SCALE}
)
_OF_GRADIENTS = frozenset(
    {
        Part.GRADIENTS,
        Part.NORMS,
        Part.HISTOGRAM,
        Part.EXTREMES,
        Part.GRADIENT_PRODUCTS,
        Part.TRAJECTORY,
        Part.CLIP,
    }
)


class Key(NamedTuple):
    """What a vector of numbers is, and the parameters it is about."""

    part: Part
    names: tuple[str, ...] = ()
    slot: int | None = None
    """Of the rotation, where only some parameters have their turn; of a clip its number."""


class ClipNote(NamedTuple):
    """One clipping of an optimiser's gradients; the norm that torch found is among the tensors, where it was one."""

    limit: float
    by_value: bool
    names: frozenset[str] | None
    """The parameters that were clipped, None where all were."""
    dtype: torch.dtype = torch.float32
    """Of that norm."""


@dataclass(slots=True)
class OptimizerNumbers:
    """The numbers of one optimiser."""

    tensors: dict[Key, Tensor] = field(default_factory=dict)
    clips: list[ClipNote] = field(default_factory=list)
    """How its gradients were clipped, in order."""
    is_incomplete: bool = False
    """Whether a gradient could not be read: a norm of the others would not be theirs."""
    has_whole_updates: bool = False
    """Whether the updates of all parameters were measured."""
    has_layers: bool = False
    """Whether the statistics of every gradient have their turn to be recorded."""
    infinite: dict[Key, frozenset[str]] = field(default_factory=dict)
    """Of rows: the tensors that have infinite values and no NaN, where that is known (on a CPU)."""
    plain: Float64 | None = None
    """Rows and norms of all gradients (`TensorStats.vector`), as long as they are all that was measured."""

    def add(self, key: Key, tensor: Tensor) -> None:
        """Note a tensor; it must not change before it is sent. Of two with one key the later counts."""
        self.tensors[key] = tensor

    def spread(self, names: tuple[str, ...]) -> None:
        """There is more than plain gradients: have these, of the parameters with these names, be like other tensors."""
        if self.plain is not None:
            (rows, norms), self.plain = rows_and_norms(self.plain), None
            key = Key(Part.GRADIENTS, names)
            self.tensors[key] = torch.from_numpy(rows)
            self.infinite.update(infinite_of(key, norms))

    def forget_gradients(self) -> None:
        """What was read of the gradients is not what the optimiser will get: they have changed since."""
        self.clips.clear()
        self.plain = None
        self.tensors = {key: tensor for key, tensor in self.tensors.items() if key.part not in _OF_GRADIENTS}

    def in_order(self) -> tuple[list[Key], list[Tensor], int]:
        """Keys and tensors, what every step must have first, and how many of them that are."""
        keys = list(self.tensors)
        num = len(keys)
        if num > 1:
            keys.sort(key=lambda key: key.part not in _ESSENTIAL)
            num = sum(key.part in _ESSENTIAL for key in keys)
        return keys, [self.tensors[key] for key in keys], num


@dataclass(frozen=True, slots=True, kw_only=True)
class StepNote:
    """What the training thread noted of a step beside the numbers."""

    keys: Sequence[Key]
    sizes: Sequence[int]
    iteration: int
    clips: Sequence[ClipNote] = ()
    is_incomplete: bool = False
    has_whole_updates: bool = False
    has_layers: bool = True
    infinite: Mapping[Key, frozenset[str]] = field(default_factory=dict)

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing but gradients to a step, which nothing has changed."""
        is_plain = len(self.keys) == 1 and self.keys[0].part is Part.GRADIENTS
        return is_plain and not (self.clips or self.is_incomplete or self.has_layers or self.infinite)


def infinite_of(key: Key, norms: Float64) -> dict[Key, frozenset[str]]:
    """Of a key's tensors those whose norm is infinite, where there are any."""
    names = frozenset(name for name, norm in zip(key.names, norms.tolist(), strict=True) if math.isinf(norm))
    return {key: names} if names else {}


def apart(keys: Sequence[Key], sizes: Sequence[int], numbers: Float64) -> Mapping[Key, Float64]:
    """The numbers that came back, by what they are; those that were left behind are not among them."""
    found: dict[Key, Float64] = {}
    place = 0
    for key, size in zip(keys, sizes, strict=True):
        if place + size <= len(numbers):
            found[key] = numbers[place : place + size]
        place += size
    return found
