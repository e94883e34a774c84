"""What a probe is: something hooked into a training for single iterations, and the rows that come of it.

A probe has slots (blocks, matrices, or a single one). When an iteration of the training loop begins in which some of
them have their turn, the monitor arms the probe with them; when the iteration is over it collects what was found. In
between the probe may hook modules and note tensors; outside it is not there at all.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torch import Tensor

from sonde.core.frames import Columns
from sonde.core.records import Float64


@dataclass(slots=True)
class Stamp:
    """The step of an iteration whose weights were copied: what comes of them later belongs to it."""

    step: int | None = None
    """Filled in when the iteration is worked out in the background; None where it is not of this line of steps."""


class Row(NamedTuple):
    """Values of one table at one step, in the order of its columns."""

    columns: Columns
    values: Float64
    stamp: Stamp | None = None
    """Of an earlier iteration, where they belong to that; None for the present one."""


class Reading(NamedTuple):
    """Numbers that are still on their device, and what becomes of them.

    Attributes:
        tensors: Small ones that nothing changes any more, of any floating-point or integer type and shape.
        report: Called in the background, in the order of steps, with all their numbers in one float64 vector.
        stamp: Where something was copied in this iteration that will be told in a later one.
    """

    tensors: Sequence[Tensor]
    report: Callable[[Float64], Iterable[Row]]
    stamp: Stamp | None = None


class Probe(Protocol):
    """A family of measurements.

    Everything but `Reading.report` is called from the training thread, and never waits for the device (no `.item()`, no
    copy to the host), draws no random number, changes no tensor of the training and no module for longer than an
    iteration.
    """

    @property
    def yields(self) -> Mapping[str, str]:
        """The tags that may come of it, `@` standing for every place, each with a line that says what it is."""

    @property
    def num_slots(self) -> int:
        """In how many parts its work is spread over steps; 0 where there is nothing to measure."""

    def arm(self, slots: Sequence[int]) -> None:
        """An iteration begins in which these slots have their turn."""

    def collect(self) -> Sequence[Reading]:
        """The iteration is over: what was found. Nothing is hooked any more."""

    def not_measured(self) -> Mapping[str, str]:
        """What cannot be measured, as tags or patterns of tags, each with its reason; the same may be said again."""

    def close(self) -> None:
        """Let go of modules and tensors; also in the middle of an iteration."""
