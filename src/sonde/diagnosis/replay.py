"""The diagnosis of a run that is stored: its rows in the order in which they were recorded."""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping

from sonde.core.findings import Diagnosis, Finding
from sonde.core.frames import Frame
from sonde.core.late_rows import as_known
from sonde.core.model_table import ModelTable
from sonde.core.records import Event
from sonde.diagnosis.across import compared
from sonde.diagnosis.doctor import Doctor
from sonde.rules.configuring import configured
from sonde.rules.ranks.rank_series import RankSeries
from sonde.rules.rule import Rule


def replay(
    run: str,
    tables: Iterable[Iterator[Frame]],
    events: Iterable[Event],
    *,
    rules: Iterable[Rule] | None = None,
    ranks: Mapping[str, RankSeries] | None = None,
    model: ModelTable | None = None,
    on_finding: Callable[[Finding], None] | None = None,
) -> Diagnosis:
    """Diagnose from the rows of each table, in the order of their steps, and the run's events.

    An event belongs to the step after which it happened. Where the run went back to a checkpoint, what happened after
    that on the line that was left does not count.

    Args:
        run: Name of the run.
        tables: The rows of each table, steps rising.
        events: Of the run, in the order in which they happened.
        rules: Those to apply; all where left out.
        ranks: Of several processes that trained together: the series of `ACROSS_RANKS`, each with the steps and values
            of every rank. Without them nothing is said about ranks.
        model: What the model is made of; None where the run does not say.
        on_finding: Called with each finding that is new or has got worse, as it would have been while the run went on:
            its `last_step` is the step at which it was known.
    """

    def tell(found: Iterable[Finding]) -> None:
        if on_finding is not None:
            for finding in found:
                on_finding(finding)

    applied, across = compared(configured({}) if rules is None else rules)
    for rule in across:
        rule.tell(ranks or {})
    doctor = Doctor(applied, model=model)
    waiting = iter(sorted(_on_line(events), key=_step))
    event = next(waiting, None)
    for frame in heapq.merge(*(map(as_known, table) for table in tables), key=lambda frame: frame.step):
        while event is not None and _step(event) < frame.step:
            tell(doctor.event(event.kind, event.data))
            event = next(waiting, None)
        tell(doctor.frame(frame))
    while event is not None:  # those of the last step, which is judged with them
        tell(doctor.event(event.kind, event.data))
        event = next(waiting, None)
    tell(doctor.settle())
    return doctor.diagnosis(run)


def _step(event: Event) -> int:
    assert event.step is not None
    return event.step


def _on_line(events: Iterable[Event]) -> list[Event]:
    """Those with a step, without what happened later than a checkpoint that was gone back to."""
    kept: list[Event] = []
    for event in events:
        if event.step is not None:
            if event.kind == "resumed":
                kept = [earlier for earlier in kept if _step(earlier) <= event.step]
            kept.append(event)
    return kept
