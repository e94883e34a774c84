"""What the training thread notes down in a step, for the background to work out."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sonde.core.records import Float64
from sonde.monitor.naps import Nap
from sonde.probes.probe import Reading, Row, Stamp

# What every step must have. The rest may be left behind where there is no room.
_ESSENTIAL = frozenset(
    [
        "loss",
        "part",
        "lr",
        "grad",
        "norm",
        "norm_clipped",
        "clip",
        "scale",
        "clip_scale",
        "grad_scale",
        "found_inf",
        "value",
    ]
)


_OF_GRADIENTS = frozenset({"grad", "norm", "histogram", "extremes", "grad_cosine", "trajectory", "clip"})

Report = Callable[[Float64], Iterable[Row]]


class Key(NamedTuple):
    """What a vector of numbers is: its kind, the optimiser it belongs to, the parameters it is about."""

    kind: str
    optimizer: str = ""
    names: tuple[str, ...] = ()
    slot: int | None = None
    """Of the rotation, where only some parameters have their turn."""


class ClipNote(NamedTuple):
    """One clipping of an optimiser's gradients; the norm that torch found is among the tensors, where it was one."""

    limit: float
    by_value: bool
    names: frozenset[str] | None
    """The parameters that were clipped, None where all were."""
    dtype: torch.dtype = torch.float32
    """Of that norm."""


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
    whole_updates: set[str] = field(default_factory=set)
    """The optimisers of which the updates of all parameters were measured."""
    infinite: dict[Key, frozenset[str]] = field(default_factory=dict)
    """Of rows: the tensors that have infinite values and no NaN, where that is known (on a CPU)."""
    tensors: dict[Key, Tensor] = field(default_factory=dict)
    host: dict[str, float] = field(default_factory=dict)
    """Plain numbers of the step, by tag."""
    loss: float | None = None
    """Where the loss was given as a plain number."""
    clips: dict[str, list[ClipNote]] = field(default_factory=dict)
    """For each optimiser whose gradients were clipped: how, in order."""
    readings: list[Reading] = field(default_factory=list)
    """What the probes found."""
    event: tuple[str, dict[str, Any]] | None = None
    """A sheet of its own: something that happened after the last step, and what is to be said about it."""
    row: tuple[str, dict[str, float]] | None = None
    """A sheet of its own: a row after the last step, of this table (an evaluation, an epoch)."""
    naps: Sequence[Nap] = ()
    """A sheet of its own: iterations that rested, in order."""
    sizes: list[tuple[Key, int]] = field(default_factory=list)
    """Filled in when the tensors are sent: what the numbers that come back are."""
    reports: list[tuple[int, Report]] = field(default_factory=list)
    """The same for what the probes found."""
    stamps: list[Stamp] = field(default_factory=list)
    """Of what was copied in this iteration and will be told in a later one."""

    def add(self, key: Key, tensor: Tensor) -> None:
        """Note a tensor; it must not change before the sheet is sent. Of two with one key the later counts."""
        self.tensors[key] = tensor

    def forget_gradients(self, optimizer: str) -> None:
        """What was read of an optimiser's gradients is not what it will get: they have changed since."""
        self.clips.pop(optimizer, None)
        self.tensors = {
            key: tensor
            for key, tensor in self.tensors.items()
            if key.optimizer != optimizer or key.kind not in _OF_GRADIENTS
        }

    def drop_detail(self) -> None:
        """Keep what every step must have: the loss, learning rates and global norms."""
        self.tensors = {key: tensor for key, tensor in self.tensors.items() if key.kind in _ESSENTIAL}
        self.readings = []

    def send_off(self) -> list[Tensor]:
        """The tensors, to be sent; the sheet notes their sizes."""
        self.sizes = [(key, tensor.numel()) for key, tensor in self.tensors.items()]
        return [*self.tensors.values(), *(tensor for reading in self.readings for tensor in reading.tensors)]

    def let_go(self) -> None:
        """Hold no tensor any longer: they were sent."""
        self.reports = [(sum(t.numel() for t in reading.tensors), reading.report) for reading in self.readings]
        self.stamps = [reading.stamp for reading in self.readings if reading.stamp is not None]
        self.tensors, self.readings = {}, []

    def sort(self, values: Float64) -> tuple[Mapping[Key, Float64], list[tuple[Report, Float64]]]:
        """The numbers that came back: by what they are, and those of each reading."""
        found: dict[Key, Float64] = {}
        place = 0
        for key, size in self.sizes:
            found[key] = values[place : place + size]
            place += size
        read: list[tuple[Report, Float64]] = []
        for size, report in self.reports:
            read.append((report, values[place : place + size]))
            place += size
        return found, read
