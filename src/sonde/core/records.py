"""What a run gives back, and the two interfaces that every store has.

A recorder writes, a record reads.
"""

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from sonde.core.frames import Float32, Frame

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]


class Series(NamedTuple):
    """The measured points of one tag, in the order of their steps; NaN and infinities as measured."""

    step: Int64
    value: Float32
    time: Float64


class Window(NamedTuple):
    """A series summed up in at most as many buckets as were asked for.

    `min`, `mean` and `max` are over the finite values of a bucket (NaN where it has none); `finite` and
    `nonfinite` count its values, so that a NaN is never hidden by the zoom.
    """

    step: Int64
    """First step of each bucket."""
    min: Float32
    mean: Float32
    max: Float32
    finite: Int64
    nonfinite: Int64


class Point(NamedTuple):
    """One value of one series."""

    step: int
    value: float
    time: float


class Ending(enum.StrEnum):
    """How a run stands."""

    LIVE = "live"
    """It is being recorded now."""
    FINISHED = "finished"
    """It was closed."""
    EXITED = "exited"
    """The process ended without closing it: it ran off its end, or called `sys.exit`."""
    CRASHED = "crashed"
    """An exception ended the process."""
    INTERRUPTED = "interrupted"
    """Ctrl-C."""
    TERMINATED = "terminated"
    """SIGTERM, as the process that makes the findings saw it."""
    DIED = "died"
    """It was killed; or it is not being recorded, and nobody said why: out of memory, power lost."""


@dataclass(frozen=True, slots=True)
class State:
    """How a run stands, and why."""

    ending: Ending
    reason: str = ""
    """For example the exception's type and message."""
    steps: int = 0
    """The last step."""
    updated: float = 0.0
    """UTC, seconds since 1970."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Rows that a slow disk made the recorder drop, a table each."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened: a finding, an action, a note."""

    kind: str
    time: float
    step: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Branch:
    """A line of steps.

    A run that goes back to an earlier step goes on in a new branch; the old points stay.
    """

    number: int
    parent: int | None
    fork_step: int
    """The first step that is this branch's own; what came before is its parent's."""


class Recorder(Protocol):
    """Takes frames and events from a training; never blocks and never raises while it is open."""

    def append(self, frame: Frame) -> None:
        """Take one row. A step below the table's last one, or below the branch's first, starts a new branch."""

    def event(self, kind: str, *, step: int | None = None, data: Mapping[str, Any] | None = None) -> None:
        """Take one event."""

    def branch(self, step: int) -> None:
        """Go back: rows from here on belong to a new branch that begins at `step`."""

    def flush(self) -> bool:
        """Wait until all that was taken can be read; False where it could not be written."""

    def close(self) -> None:
        """Flush and let go; a second call does nothing."""


class Record(Protocol):
    """Reads a run, live or ended."""

    def tags(self, pattern: str = "*") -> list[str]:
        """All tags that match a shell-style pattern, sorted."""

    def series(
        self, tag: str, *, start: int | None = None, end: int | None = None, branch: int | None = None
    ) -> Series:
        """The measured points of a tag, `start` to `end` included, on the current line or a branch's."""

    def last(self) -> dict[str, Point]:
        """The newest measured point of every tag."""

    def window(self, tag: str, start: int | None = None, end: int | None = None, points: int = 2000) -> Window:
        """A series in at most `points` buckets."""

    def events(self, kind: str | None = None) -> list[Event]:
        """Everything that happened, in order, or what is of one kind."""

    @property
    def branches(self) -> Sequence[Branch]:
        """All branches; the last is the current one."""

    def follow(self, *, poll_s: float = 0.5, from_start: bool = True) -> Iterator[Frame]:
        """Rows as they come, until the run ends."""
