"""What a report is about: a run and what was found in it, read once for all sections."""

import functools
from dataclasses import dataclass

from sonde.core.findings import Diagnosis, Finding
from sonde.core.records import Point, State
from sonde.reports.pictures import window
from sonde.store.reader import Run


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A run, its diagnosis, and what several sections ask.

    Args:
        run: As it is now.
        diagnosis: Of it.
        target: A loss to be reached, where the reader has one in mind.
    """

    run: Run
    diagnosis: Diagnosis
    target: float | None = None

    @functools.cached_property
    def state(self) -> State:
        """How the run stands."""
        return self.run.state

    @functools.cached_property
    def last(self) -> dict[str, Point]:
        """The newest point of every series, layers in the order in which they were recorded."""
        return self.run.last()

    @functools.cached_property
    def alarms(self) -> tuple[Finding, ...]:
        """Findings of severity warning or above: open ones first, else in the order of the diagnosis."""
        found = [finding for finding in self.diagnosis if finding.severity.is_alarm]
        return tuple(sorted(found, key=lambda finding: not finding.open))

    @functools.cached_property
    def first_step(self) -> int:
        """The first step of the loss, or 0 where there is none."""
        found = window(self.run, "loss", points=1)
        return int(found.step[0]) if found is not None else 0

    @property
    def num_steps(self) -> int:
        """Steps with a loss; the number of the last one where there is no loss."""
        return self.diagnosis.steps or self.state.steps

    def has(self, tag: str) -> bool:
        """Whether a series has a value."""
        return tag in self.last
