"""What the training thread notes down in a step, for the background to work out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from sonde.core.records import Float64

_DETAIL = frozenset({"grad", "weight", "update", "before", "histogram"})


class Key(NamedTuple):
    """What a vector of numbers is: its kind, the optimiser it belongs to, the parameters it is about."""

    kind: str
    optimizer: str = ""
    names: tuple[str, ...] = ()
    slot: int | None = None
    """Of the rotation, where only some parameters have their turn."""


class ClipNote(NamedTuple):
    """One clipping of an optimiser's gradients; its norm before is among the tensors."""

    limit: float
    by_value: bool
    names: frozenset[str] | None
    """The parameters that were clipped, None where all were."""


@dataclass(slots=True)
class Sheet:
    """One iteration of the loop: tensors whose numbers are still on their device, and plain numbers."""

    time: float
    applied: set[str] = field(default_factory=set)
    """The optimisers that made a step, as far as the host knows."""
    skipped: set[str] = field(default_factory=set)
    """The optimisers whose step a gradient scaler withheld."""
    incomplete: set[str] = field(default_factory=set)
    """The optimisers with a gradient that could not be read: a norm of the others would not be theirs."""
    tensors: dict[Key, Tensor] = field(default_factory=dict)
    host: dict[str, float] = field(default_factory=dict)
    """Plain numbers of the step, by tag."""
    loss: float | None = None
    """Where the loss was given as a plain number."""
    clips: dict[str, list[ClipNote]] = field(default_factory=dict)
    """For each optimiser whose gradients were clipped: how, in order."""
    evaluation: dict[str, float] | None = None
    """A sheet of its own: what an evaluation after the last step found."""
    sizes: list[tuple[Key, int]] = field(default_factory=list)
    """Filled in when the tensors are sent: what the numbers that come back are."""

    def add(self, key: Key, tensor: Tensor) -> None:
        """Note a tensor; it must not change before the sheet is sent. Of two with one key the later counts."""
        self.tensors[key] = tensor

    def drop_detail(self) -> None:
        """Keep what every step must have: the loss, learning rates and global norms."""
        self.tensors = {key: tensor for key, tensor in self.tensors.items() if key.kind not in _DETAIL}

    def send_off(self) -> list[Tensor]:
        """The tensors, to be sent; the sheet notes their sizes."""
        self.sizes = [(key, tensor.numel()) for key, tensor in self.tensors.items()]
        return list(self.tensors.values())

    def sort(self, values: Float64) -> Mapping[Key, Float64]:
        """The numbers that came back, by what they are."""
        found: dict[Key, Float64] = {}
        place = 0
        for key, size in self.sizes:
            found[key] = values[place : place + size]
            place += size
        return found
