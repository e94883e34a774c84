"""What a probe is: something that listens to a training, and the rows that come of it.

A sampled probe has slots (blocks, matrices, or a single one). When an iteration of the training loop begins in which
some of them have their turn, the monitor arms the probe with them; when the iteration is over it collects what was
found. In between the probe may listen to modules and note tensors. A standing probe is there in every iteration.
"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from torch import Tensor

from sonde.core.frames import Columns, Detail, Float32
from sonde.core.records import Float64
from sonde.probes.events import Events

STEP = "step"
"""The table of the steps' own rows: what several probes give of it is one row."""


@dataclass(slots=True)
class Stamp:
    """The step of an iteration whose weights were copied: what comes of them later belongs to it."""

    step: int | None = None
    """Filled in when the iteration is worked out in the background; None where it is not of this line of steps."""


class Row(NamedTuple):
    """Values of one table at one step, in the order of its columns."""

    columns: Columns
    values: Float64 | Float32
    stamp: Stamp | None = None
    """Of an earlier iteration, where they belong to that; None for the present one."""


@functools.lru_cache(maxsize=256)
def _columns(table: str, tags: tuple[str, ...]) -> Columns:
    return Columns(table, tags)


def table_row(table: str, values: Mapping[str, float]) -> Row:
    """A row of a table from its numbers by their tags."""
    return Row(_columns(table, tuple(values)), np.fromiter(values.values(), np.float64, len(values)))


def step_row(values: Mapping[str, float]) -> Row:
    """Numbers that belong into the step's own row, by their tags."""
    return table_row(STEP, values)


@functools.lru_cache(maxsize=1024)
def columns_at(
    table: str, quantities: tuple[str, ...], places: tuple[str, ...], detail: Detail = Detail.ESSENTIAL
) -> Columns:
    """The columns of all quantities at some places, made once for each set of them; those of the first place first.

    Which places come together may change at every step (experts, inputs): of many sets the latest are kept.

    Args:
        table: Where rows go.
        quantities: What tags begin with, such as `attn/entropy@`.
        places: What tags end in.
        detail: How much detail the table holds.

    Example:
        >>> columns_at("gains", ("gain/block@",), ("0", "1")).tags
        ('gain/block@0', 'gain/block@1')
    """
    return Columns(table, [quantity + place for place in places for quantity in quantities], detail)


class Reading(NamedTuple):
    """Numbers that are still on their device, and what becomes of them.

    Attributes:
        tensors: Small ones that nothing changes any more, of any floating-point or integer type and shape.
        report: Called in the background, in the order of steps, with all their numbers in one float64 vector.
        stamp: Where something was copied in this iteration that will be told in a later one.
        optimizer: Whose step it is about: where that was withheld, nothing is reported. None where it is about none.
        num_essential: So many of the tensors, from the first on, are what every step must have: where there is no room
            for all, `report` gets the numbers of those alone.
    """

    tensors: Sequence[Tensor]
    report: Callable[[Float64], Iterable[Row]]
    stamp: Stamp | None = None
    optimizer: str | None = None
    num_essential: int = 0


def known(*rows: Row, stamp: Stamp | None = None) -> Reading:
    """Rows that need no number from a device."""
    return Reading((), lambda _: rows, stamp)


class Standing(Protocol):
    """A probe that listens in every iteration.

    Everything but `Reading.report` is called from the training thread, and never waits for the device (no `.item()`, no
    copy to the host), draws no random number, changes no tensor of the training and no module for longer than an
    iteration.
    """

    def listen(self, events: Events) -> None:
        """Begin to listen to what happens in the training."""

    def collect(self) -> Sequence[Reading]:
        """The iteration is over: what was found."""

    def not_measured(self) -> Mapping[str, str]:
        """What cannot be measured, as tags or patterns of tags, each with its reason; the same may be said again."""

    def close(self) -> None:
        """Let go of modules and tensors; also in the middle of an iteration."""


class Probe(Protocol):
    """A sampled family of measurements, bound by the same rules."""

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
