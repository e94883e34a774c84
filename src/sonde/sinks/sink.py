"""What a sink is: somebody else's logger, told rows and events in batches."""

from collections.abc import Sequence
from typing import Protocol

from sonde.core.errors import FormatError
from sonde.core.findings import Finding
from sonde.core.frames import Frame
from sonde.core.records import Event
from sonde.sinks.selections import Selection

STARTED, BRANCHED = "@started", "@branched"
"""Events that only sinks are told: `{"run": folder, "config": …}`, first of all; that the run goes back to a step.

Nobody else's event may be taken for one: a relay leaves out those whose names begin with `@`.
"""

Item = Frame | Event


class Refused(Exception):
    """A sink will never take this batch: it is not tried again."""


class Sink(Protocol):
    """Writes elsewhere. All is called from one thread, which is the sink's to keep waiting.

    A sink is made before the training begins and reaches for its service at the first `write`, and again after one that
    failed.
    """

    @property
    def name(self) -> str:
        """What it is called in messages."""

    @property
    def selection(self) -> Selection:
        """What it wants to be told."""

    def write(self, batch: Sequence[Item]) -> None:
        """Take some rows and events, in the order in which they came; the rows of a step come together.

        Raises:
            Refused: it will never be taken.
            Exception: anything else, the service is not there; the same comes again later, so that what had been taken
                of it may come twice.
        """

    def close(self, timeout_s: float) -> None:
        """Have what was taken arrive, within about this time, and let go. Also called where nothing was written."""


def finding(event: Event) -> Finding | None:
    """What an event says was found; None where it says something else."""
    if event.kind != "finding":
        return None
    try:
        return Finding.from_json(dict(event.data))
    except FormatError:  # somebody else's event of that name
        return None
