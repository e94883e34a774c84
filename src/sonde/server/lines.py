"""The table of runs: a line a run, at the price of a few small files each."""

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, final

from sonde.core import strict_json
from sonde.core.errors import StoreError
from sonde.core.findings import Finding, Severity, Verdict
from sonde.core.records import Ending
from sonde.core.strict_json import Json
from sonde.server.diagnoses import Diagnoses
from sonde.server.recorded import Recorded, recorded
from sonde.server.remembered import Remembered
from sonde.server.stamps import RunStamp, run_stamp
from sonde.store import events, layout, notes, states
from sonde.store.glances import Glance, glance
from sonde.store.notes import Notes

Number = float | Literal["NaN", "Infinity", "-Infinity"]
"""In JSON; in Python it is a float."""

_POINTS = 40
_MOST_LINES = 20_000
_MOST_KEYS, _MOST_CHARS, _MOST_ITEMS, _DEEPEST = 200, 200, 8, 6

STATES: Mapping[Ending, str] = {
    Ending.LIVE: "running",
    Ending.FINISHED: "ended",
    Ending.EXITED: "stopped",
    Ending.INTERRUPTED: "stopped",
    Ending.TERMINATED: "stopped",
    Ending.CRASHED: "crashed",
    Ending.DIED: "died",
}
"""How a run stands, in the page's words."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A run in the table.

    Args:
        id: Its path below the folder.
        name: What it is called.
        state: One of `STATES`, or `unreadable`.
        ending: The same as `sonde runs` says it.
        reason: Why it ended.
        verdict: By findings that were recorded, or by a replay that was made already.
        alarms: How many findings of either severity count.
        steps: The last step.
        loss: The last loss.
        spark: The loss in at most 40 buckets.
        lr: The last learning rate.
        step_s: Seconds of the last step.
        created: UTC seconds.
        updated: Likewise, of the last flush.
        config: What can be shown in a column: `model.width`.
        tags: That people gave it.
        note: That people wrote on it.
        problem: Why it cannot be read, or not wholly.
        partial: Whether `spark`, `lr` and `step_s` were not read yet.
    """

    id: str
    name: str
    state: str = "unreadable"
    ending: str = ""
    reason: str = ""
    verdict: str = Verdict.UNKNOWN.value
    alarms: dict[str, int] = field(default_factory=lambda: {"warning": 0, "critical": 0})
    steps: int = 0
    loss: Number | None = None
    spark: tuple[Number, ...] = ()
    lr: Number | None = None
    step_s: Number | None = None
    created: float = 0.0
    updated: float = 0.0
    config: dict[str, Json] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    note: str = ""
    problem: str | None = None
    partial: bool = False

    def to_json(self) -> dict[str, Json]:
        """As plain data."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Said:
    """What `run.json` and `state.json` say."""

    name: str
    created: float
    config: dict[str, Json]
    is_judged: bool
    state: dict[str, Any]
    problem: str | None


@final
class Lines:
    """Makes lines, each anew only when the run's files have changed.

    Args:
        diagnoses: Replays of runs that nobody judged while they were recorded.
    """

    def __init__(self, diagnoses: Diagnoses) -> None:
        self._diagnoses = diagnoses
        self._said: Remembered[_Said] = Remembered(_MOST_LINES)
        self._recorded: Remembered[Recorded] = Remembered(2000)
        self._notes: Remembered[Notes] = Remembered(_MOST_LINES)
        self._glances: Remembered[Glance] = Remembered(_MOST_LINES)
        self._lines: Remembered[Line] = Remembered(_MOST_LINES)
        self._texts: Remembered[str] = Remembered(_MOST_LINES)

    def updated(self, run: Path) -> float:
        """When a run was last written, UTC seconds; 0 where it does not say."""
        updated = self._said_of(run, run_stamp(run)).state.get("updated", 0.0)
        return float(updated)

    def of(self, name: str, run: Path, *, until: float = math.inf) -> Line:
        """The line of a run; what cannot be read is said in it.

        Args:
            name: Its id.
            run: Its folder.
            until: When, by the monotonic clock, only what is known already goes into the line.
        """
        stamp = run_stamp(run)
        said = self._said_of(run, stamp)
        if said.problem is not None:
            return Line(id=name, name=run.name, problem=said.problem)
        # The process of a run that is called live may be gone: no file says so.
        ending = states.ending(run, said.state)
        judged = None if said.is_judged else self._diagnoses.known(run, stamp)
        shown = self._glance_of(run, stamp, said, until)
        key = name, stamp, ending, judged, shown is None
        return self._lines.get(run, key, lambda: self._line(name, run, said, stamp, ending, shown))

    def all(self, runs: Mapping[str, Path], *, until: float = math.inf) -> dict[str, Line]:
        """The lines of runs by their ids; one that was deleted since it was listed is left out.

        Args:
            runs: Their folders by their ids.
            until: When, by the monotonic clock, lines become partial; whoever asks again gets more of them.
        """
        found = {name: self.of(name, run, until=until) for name, run in runs.items()}
        return {name: line for name, line in found.items() if line.problem is None or runs[name].is_dir()}

    def text(self, line: Line) -> str:
        """A line as JSON; that of a thousand lines takes longer than to look at their runs."""
        return self._texts.get(line.id, line, lambda: strict_json.dumps(line.to_json()))

    def recorded(self, run: Path) -> Recorded:
        """What was found while it was recorded."""
        return self._recorded_of(run, run_stamp(run))

    def is_judged(self, run: Path) -> bool:
        """Whether findings were looked for while it was recorded."""
        stamp = run_stamp(run)
        return self._said_of(run, stamp).is_judged or bool(self._recorded_of(run, stamp).findings)

    def notes(self, run: Path) -> Notes:
        """What people said of it."""
        return self._notes_of(run, run_stamp(run))

    def _said_of(self, run: Path, stamp: RunStamp) -> _Said:
        return self._said.get(run, (stamp.info, stamp.state), lambda: _said(run))

    def _recorded_of(self, run: Path, stamp: RunStamp) -> Recorded:
        if stamp.events is None:
            return Recorded()
        return self._recorded.get(run, (stamp.info, stamp.events), lambda: recorded(events.read(run)))

    def _notes_of(self, run: Path, stamp: RunStamp) -> Notes:
        if stamp.notes is None:
            return Notes()
        return self._notes.get(run, stamp.notes, lambda: notes.read(run))

    def _glance_of(self, run: Path, stamp: RunStamp, said: _Said, until: float) -> Glance | None:
        """The curve and the newest numbers; None where there was no time to read them."""
        if not said.state.get("steps") and said.state.get("loss") is None:
            return Glance()
        key = stamp.info, stamp.state
        if time.monotonic() < until:
            return self._glances.get(run, key, lambda: glance(run, points=_POINTS))
        return self._glances.peek(run, key)

    def _line(self, name: str, run: Path, said: _Said, stamp: RunStamp, ending: Ending, shown: Glance | None) -> Line:
        found = self._recorded_of(run, stamp).findings
        is_judged, not_enough = said.is_judged or bool(found), False
        if not is_judged and (replayed := self._diagnoses.known(run, stamp)) is not None:
            found, not_enough, is_judged = replayed.findings, bool(replayed.not_enough), True
        held = self._notes_of(run, stamp)
        counted = [finding for finding in found if not held.is_muted(finding.code, finding.first_step)]
        loss, steps = said.state.get("loss"), said.state.get("steps", 0)
        little = not is_judged or not_enough or loss is None or not steps
        seen = shown or Glance()
        return Line(
            id=name,
            name=said.name,
            state=STATES[ending],
            ending=ending.value,
            reason=str(said.state.get("reason") or ""),
            verdict=verdict_of(counted, not_enough=little).value,
            alarms=alarms_of(counted),
            steps=steps,
            loss=loss,
            spark=seen.curve,
            lr=seen.lr,
            step_s=seen.step_s,
            created=said.created,
            updated=said.state.get("updated", 0.0),
            config=said.config,
            tags=held.tags,
            note=held.note,
            partial=shown is None,
        )


def verdict_of(findings: list[Finding], *, not_enough: bool) -> Verdict:
    """The verdict by the findings that count, as a diagnosis gives it."""
    worst = max((finding.severity for finding in findings), default=None)
    if not_enough and not (worst is not None and worst.is_alarm):
        return Verdict.UNKNOWN
    return Verdict.HEALTHY if worst is None else Verdict(worst.value)


def alarms_of(findings: list[Finding]) -> dict[str, int]:
    """How many alarms there are of either severity."""
    return {
        severity.value: sum(finding.severity is severity for finding in findings)
        for severity in (Severity.WARNING, Severity.CRITICAL)
    }


def _said(run: Path) -> _Said:
    try:
        info = layout.read_info(run)
    except StoreError as error:
        return _Said(name=run.name, created=0.0, config={}, is_judged=False, state={}, problem=str(error))
    settings = info.get("settings")
    doctor = settings.get("doctor") if isinstance(settings, Mapping) else None
    where = doctor.get("value") if isinstance(doctor, Mapping) else None
    return _Said(
        name=str(info.get("name") or run.name),
        created=float(info.get("created", 0.0)),
        config=flat(info.get("config")),
        is_judged=where in ("process", "thread"),
        state=states.read(run),
        problem=None,
    )


def flat(config: Json) -> dict[str, Json]:
    """What of a configuration fits into columns, by the names of its members joined by dots.

    Example:
        >>> flat({"lr": 0.1, "model": {"width": 8, "sizes": [1, 2]}, "data": [{}]})
        {'lr': 0.1, 'model.width': 8, 'model.sizes': '[1, 2]'}
    """
    found: dict[str, Json] = {}
    for key, value in _leaves(config, "", 0):
        if len(found) >= _MOST_KEYS:
            break
        found[key[:_MOST_CHARS]] = value
    return found


def _leaves(value: Json, key: str, depth: int) -> Iterator[tuple[str, Json]]:
    if isinstance(value, Mapping):
        if depth < _DEEPEST:
            for name, inner in value.items():
                yield from _leaves(inner, f"{key}.{name}" if key else str(name), depth + 1)
    elif isinstance(value, list | tuple):
        if key and 0 < len(value) <= _MOST_ITEMS and all(isinstance(item, str | int | float | None) for item in value):
            yield key, strict_json.dumps(value)[:_MOST_CHARS]
    elif key:
        yield key, value[:_MOST_CHARS] if isinstance(value, str) else value
