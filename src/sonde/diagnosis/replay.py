"""The diagnosis of a run that is stored: its rows in the order in which they were recorded."""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast, final

from sonde.core.findings import Diagnosis
from sonde.core.frames import Frame
from sonde.core.records import Event
from sonde.diagnosis.doctor import Doctor
from sonde.rules.catalogue import RULES
from sonde.rules.ranks.rank_divergence import RankDivergence
from sonde.rules.ranks.rank_series import RankSeries
from sonde.rules.ranks.straggler import Straggler
from sonde.rules.rule import Look, Rule, Sighting

ACROSS_RANKS = ("time/step", "time/backward", "weight/norm")
"""The series that rules compare between ranks."""


def replay(
    run: str,
    tables: Iterable[Iterator[Frame]],
    events: Iterable[Event],
    *,
    rules: Iterable[Rule] | None = None,
    ranks: Mapping[str, RankSeries] | None = None,
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
    """
    applied: list[Rule] = [kind() for kind in RULES] if rules is None else list(rules)
    doctor = Doctor([_across(rule, ranks) for rule in applied] if ranks else applied)
    waiting = iter(sorted(_on_line(events), key=_step))
    event = next(waiting, None)
    for frame in heapq.merge(*tables, key=lambda frame: frame.step):
        while event is not None and _step(event) < frame.step:
            doctor.event(event.kind, event.data)
            event = next(waiting, None)
        doctor.frame(frame)
    while event is not None:  # those of the last step, which is judged with them
        doctor.event(event.kind, event.data)
        event = next(waiting, None)
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


def _across(rule: Rule, ranks: Mapping[str, RankSeries]) -> Rule:
    """A rule, or, of those that compare ranks, what it says about these."""
    if isinstance(rule, Straggler):
        return cast("Rule", _Compared(rule, rule.judge(ranks)))
    if isinstance(rule, RankDivergence):
        return cast("Rule", _Compared(rule, rule.judge(ranks.get("weight/norm", {}))))
    return rule


@final
class _Compared:
    """A rule that has seen all ranks at once; it says so from the step of its evidence on."""

    def __init__(self, rule: Rule, sightings: Sequence[Sighting]) -> None:
        self.code, self.name, self.needs, self.causes = rule.code, rule.name, rule.needs, rule.causes
        self.quiet_steps = rule.quiet_steps
        self._sightings = [(max(item.step for item in sighting.evidence), sighting) for sighting in sightings]

    def init(self) -> tuple[Any, ...]:
        return ()

    def step(self, state: tuple[Any, ...], look: Look) -> tuple[tuple[Any, ...], Sequence[Sighting]]:
        return state, [sighting for step, sighting in self._sightings if look.scene.step >= step]
