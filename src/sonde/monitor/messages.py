"""What the training thread hands to the background: a message for each iteration, evaluation, epoch and event."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Any, Protocol, final

from torch import Tensor

from sonde.core.frames import Float32
from sonde.core.records import Float64
from sonde.probes.probe import Reading

_TENSORS = attrgetter("tensors")


class Message(Protocol):
    """Something to record."""

    def record(self, recorder: "MessageRecorder", numbers: Float64) -> None:
        """Have it recorded, with the numbers of its tensors; none of them where they could not be sent."""


class TensorMessage(Message, Protocol):
    """One that is complete but for numbers that are still on their device."""

    def tensors(self) -> Sequence[Tensor]:
        """Those whose numbers are wanted."""

    def drop_detail(self) -> None:
        """There is no room for all: keep what every step must have."""

    def drop_tensors(self) -> None:
        """None of them can be sent: go without."""

    def let_go(self) -> None:
        """Hold no tensor any longer: they were sent."""


class MessageRecorder(Protocol):
    """What messages are recorded by, in their order."""

    def step(self, message: "StepMessage", numbers: Float64) -> None:
        """Take an iteration of the loop."""

    def row(self, table: str, values: Mapping[str, float], when: float) -> None:
        """Take a row that belongs to the last step."""

    def examples(self, losses: Float32, when: float) -> None:
        """Take the losses of the examples of an evaluation, which belongs to the last step."""

    def event(self, kind: str, data: Mapping[str, Any]) -> None:
        """Take an event that happened after the last step."""

    def end(self, when: float) -> None:
        """Take that the session ends."""

    def rest(self) -> None:
        """No message follows for now: hand on what waited for company."""


@final
@dataclass(slots=True, kw_only=True)
class StepMessage:
    """One iteration of the loop: a step, a micro-step, or a step that was skipped."""

    time: float
    applied: frozenset[str]
    """The optimisers that made a step, as far as the host knows."""
    skipped: frozenset[str]
    """The optimisers whose step a gradient scaler withheld."""
    loss: float | Tensor | None
    overflows: Mapping[str, Tensor]
    """For each fused optimiser under a gradient scaler: above 0 where it was called and made no step."""
    readings: Sequence[Reading]
    """What the probes found."""
    host: dict[str, float]
    """Plain numbers of the step, by tag."""
    samples: float | None = None
    """Of all its micro-batches, where they were counted."""
    _sizes: Sequence[int] = ()
    """How many numbers each reading has, where any was sent."""
    _loss_is_late: bool = False

    def tensors(self) -> Sequence[Tensor]:
        """The loss, the overflows, then what the probes found."""
        loss = [self.loss] if isinstance(self.loss, Tensor) else []
        return [*loss, *self.overflows.values(), *chain.from_iterable(map(_TENSORS, self.readings))]

    def drop_detail(self) -> None:
        """Keep the loss, learning rates and global norms."""
        self.readings = [
            reading._replace(tensors=reading.tensors[: reading.num_essential])
            for reading in self.readings
            if reading.num_essential or not reading.tensors
        ]

    def drop_tensors(self) -> None:
        """Keep what the host knows."""
        self.readings = [reading for reading in self.readings if not reading.tensors]
        self.overflows = {}
        self.loss = None if isinstance(self.loss, Tensor) else self.loss
        self.let_go()

    def let_go(self) -> None:
        """Remember how many numbers each reading has."""
        self._sizes = [sum(map(Tensor.numel, reading.tensors)) for reading in self.readings]
        self.readings = [reading._replace(tensors=()) if reading.tensors else reading for reading in self.readings]
        if isinstance(self.loss, Tensor):
            self.loss, self._loss_is_late = None, True

    def record(self, recorder: MessageRecorder, numbers: Float64) -> None:
        """As an iteration."""
        recorder.step(self, numbers)

    def losses(self, numbers: Float64) -> list[float]:
        """The loss, where there is one."""
        if self._loss_is_late:
            return [float(number) for number in numbers[:1]]
        return [] if self.loss is None else [float(self.loss)]

    def withheld(self, numbers: Float64) -> set[str]:
        """The optimisers that were called and made no step."""
        if not self.overflows:
            return set()
        first = int(self._loss_is_late)
        found = numbers[first : first + len(self.overflows)].tolist()
        return {name for name, overflow in zip(self.overflows, found, strict=False) if overflow > 0}

    def reports(self, numbers: Float64) -> list[tuple[Reading, Float64]]:
        """Each reading with its numbers."""
        if not self._sizes:
            return [(reading, numbers) for reading in self.readings]
        place = int(self._loss_is_late) + len(self.overflows)
        found: list[tuple[Reading, Float64]] = []
        for reading, size in zip(self.readings, self._sizes, strict=True):
            found.append((reading, numbers[place : place + size]))
            place += size
        return found


@final
@dataclass(slots=True)
class RowMessage:
    """A row that belongs to the last step: an evaluation, an epoch."""

    time: float
    table: str
    values: dict[str, float]
    late: dict[str, Tensor] = field(default_factory=dict)
    """Values that are still on their device."""
    _tags: list[str] = field(default_factory=list)
    """Theirs, once they are sent."""

    def tensors(self) -> Sequence[Tensor]:
        """The late values."""
        return list(self.late.values())

    def drop_detail(self) -> None:
        """All of it is essential."""

    def drop_tensors(self) -> None:
        """Keep what the host knows."""
        self.late = {}

    def let_go(self) -> None:
        """Keep the tags."""
        self._tags, self.late = list(self.late), {}

    def record(self, recorder: MessageRecorder, numbers: Float64) -> None:
        """As a row."""
        values = {**self.values, **dict(zip(self._tags, numbers.tolist(), strict=False))}
        if values:
            recorder.row(self.table, values, self.time)


@final
@dataclass(slots=True)
class ExamplesMessage:
    """The losses of the examples of an evaluation, which belongs to the last step."""

    time: float
    losses: Float32

    def record(self, recorder: MessageRecorder, numbers: Float64) -> None:
        """As a row of their own."""
        recorder.examples(self.losses, self.time)


@final
@dataclass(slots=True)
class EventMessage:
    """Something that happened after the last step."""

    kind: str
    data: Mapping[str, Any]

    def record(self, recorder: MessageRecorder, numbers: Float64) -> None:
        """As an event."""
        recorder.event(self.kind, self.data)


@final
@dataclass(slots=True)
class EndMessage:
    """The session ends: nothing comes after it."""

    time: float

    def record(self, recorder: MessageRecorder, numbers: Float64) -> None:
        """As the end."""
        recorder.end(self.time)
