"""The diagnosis of a run that is stored: its rows in the order in which they were recorded."""

import heapq
from collections.abc import Iterable, Iterator

from sonde.core.findings import Diagnosis
from sonde.core.frames import Frame
from sonde.core.records import Event
from sonde.diagnosis.doctor import Doctor
from sonde.rules.rule import Rule


def replay(
    run: str, tables: Iterable[Iterator[Frame]], events: Iterable[Event], *, rules: Iterable[Rule] | None = None
) -> Diagnosis:
    """Diagnose from the rows of each table, in the order of their steps, and the run's events.

    Args:
        run: Name of the run.
        tables: The rows of each table, steps rising.
        events: Of the run, in the order in which they happened.
        rules: Those to apply; all where left out.
    """
    doctor = Doctor(rules)
    waiting = iter(sorted((e for e in events if e.step is not None), key=lambda event: event.step or 0))
    event = next(waiting, None)
    for frame in heapq.merge(*tables, key=lambda frame: frame.step):
        while event is not None and (event.step or 0) < frame.step:
            doctor.event(event.kind, event.data)
            event = next(waiting, None)
        doctor.frame(frame)
    while event is not None:
        doctor.event(event.kind, event.data)
        event = next(waiting, None)
    return doctor.diagnosis(run)
