"""One run with all that a page about it begins with."""

import itertools
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import final

import numpy as np

from sonde.core.errors import StoreError
from sonde.core.findings import Diagnosis, Finding
from sonde.core.groups import groups
from sonde.core.strict_json import Json
from sonde.rules.alarm_precision import PRECISION
from sonde.rules.catalogue import rule_of
from sonde.rules.tiers import tier_of
from sonde.server.diagnoses import Diagnoses
from sonde.server.lines import Line, Lines
from sonde.server.opened import OpenRun, OpenRuns
from sonde.server.recorded import Recorded, finding_id
from sonde.server.stamps import run_stamp
from sonde.signals.phases import Phase, Phases
from sonde.store import layout, opening
from sonde.store.notes import Notes
from sonde.store.reader import Run

_MOST_ROWS = 20_000  # of modules, and of parameters
_MOST_EVALUATIONS = 2_000
_PHASE_POINTS = 300
_PHASES = {Phase.WARMUP: "warmup", Phase.CONSTANT: "constant", Phase.DECAY: "decay"}


@final
class Details:
    """Tells of single runs.

    Args:
        lines: The table of runs.
        opened: Runs that are open.
        diagnoses: Asked for where nothing was judged while a run was recorded.
    """

    def __init__(self, lines: Lines, opened: OpenRuns, diagnoses: Diagnoses) -> None:
        self._lines, self._opened, self._diagnoses = lines, opened, diagnoses

    def of(self, name: str, path: Path) -> dict[str, Json]:
        """All of it; what cannot be read is empty and said in `problem` and `problems`."""
        line = self._lines.of(name, path)
        told = {**_EMPTY, **line.to_json(), "notes": self._lines.notes(path).to_json()}
        try:
            with self._opened.use(path) as opened:
                told |= self._told(line, path, opened)
        except (StoreError, OSError) as error:
            told["problem"] = told["problem"] or str(error)
        return told

    def _told(self, line: Line, path: Path, opened: OpenRun) -> dict[str, Json]:
        run = opened.run
        how, found, problem = self._judged(line, path)
        notes = self._lines.notes(path)
        findings = list(found.findings)
        counted = [finding for finding in findings if not notes.is_muted(finding.code, finding.first_step)]
        told = {
            "environment": run.info.get("environment") or {},
            "model": _model(run),
            "schedule": schedule(run),
            "diagnosis": how,
            "findings": [finding_json(finding, notes) for finding in findings],
            "groups": [group.to_json(findings) for group in groups(counted)],
            "not_measured": list(found.not_measured),
            "branches": [asdict(branch) for branch in run.branches],
            "ranks": _ranks(run),
            "evaluations": _evaluations(run),
            "num_tags": len(opened.tags()),
        }
        told["problems"] = run.problems + ([f"it could not be diagnosed: {problem}"] if problem else [])
        return told

    def _judged(self, line: Line, path: Path) -> tuple[str, Recorded | Diagnosis, str | None]:
        """How the findings came, the findings, and why there are none."""
        if self._lines.is_judged(path):
            return "recorded", self._lines.recorded(path), None
        stamp = run_stamp(path)
        if line.state == "running":  # it would have to be replayed again and again
            return "none", self._lines.recorded(path), None
        if (known := self._diagnoses.known(path, stamp)) is not None:
            return "replayed", known, None
        if (failure := self._diagnoses.failure(path, stamp)) is not None:
            return "none", self._lines.recorded(path), failure
        self._diagnoses.ask(path, stamp)
        return "working", self._lines.recorded(path), None


_EMPTY: dict[str, Json] = {
    "environment": {},
    "model": None,
    "schedule": [],
    "diagnosis": "none",
    "findings": [],
    "groups": [],
    "not_measured": [],
    "branches": [],
    "ranks": [],
    "evaluations": [],
    "num_tags": 0,
    "problems": [],
}


def finding_json(finding: Finding, notes: Notes) -> dict[str, Json]:
    """A finding as the page has it."""
    return {
        **finding.to_json(),
        "id": finding_id(finding),
        "muted": notes.is_muted(finding.code, finding.first_step),
        "tier": tier_name(finding.code),
        "precision": precision(finding.code),
    }


def tier_name(code: str) -> str | None:
    """The tier of a rule; None where no package that is installed has it."""
    rule = rule_of(code)
    return None if rule is None else tier_of(rule).value


def precision(code: str) -> dict[str, int] | None:
    """How many of a rule's alarms were right in the project's own trainings; None where none was counted."""
    right, alarms = PRECISION.get(code, (0, 0))
    return {"right": right, "alarms": alarms} if alarms else None


def schedule(run: Run) -> list[dict[str, Json]]:
    """The phases of the learning rate, as they were recorded, else as the rate's own series shows them."""
    found = _recorded_phases(run)
    over = found[-1]["to"] if found else -1
    # A phase is recorded once it is over: the one under way is not, nor any of a run that was imported.
    return found + [phase for phase in _phases_of_rate(run) if phase["from"] > over]


def _recorded_phases(run: Run) -> list[dict[str, Json]]:
    tags = ("phase", "phase/start", "phase/steps")
    if not all(map(run.has, tags)):
        return []
    kinds, starts, lengths = map(run.series, tags)
    found = []
    rows = zip(kinds.value.tolist(), starts.value.tolist(), lengths.value.tolist(), strict=False)
    for kind, start, length in rows:
        if np.isfinite([kind, start, length]).all() and kind in (1, 2, 3):
            first = int(start)
            found.append({"phase": _PHASES[Phase(int(kind))], "from": first, "to": first + max(0, int(length) - 1)})
    return found


def _phases_of_rate(run: Run) -> list[dict[str, Json]]:
    if not run.has("lr"):
        return []
    window = run.window("lr", points=_PHASE_POINTS)
    phases = Phases()
    state = phases.init(1)
    found: list[dict[str, Json]] = []
    for step, rate in zip(window.step.tolist(), window.mean.tolist(), strict=True):
        state, out = phases.step(state, np.array([rate]), step)
        phase, start = Phase(int(out.phase[0])), int(out.start[0])
        if phase not in _PHASES:
            continue
        if found and found[-1]["phase"] == _PHASES[phase]:
            found[-1]["to"] = step
        else:
            found.append({"phase": _PHASES[phase], "from": max(start, 0), "to": step})
    for one, following in itertools.pairwise(found):
        one["to"] = max(one["from"], min(one["to"], following["from"] - 1))
    return found


def _model(run: Run) -> dict[str, Json] | None:
    model = run.model
    if model is None:
        return None
    return {
        "modules": _rows(model.modules),
        "parameters": _rows(model.parameters),
        "num_modules": len(model.modules),
        "num_parameters": len(model.parameters),
        "num_values": model.num_values,
        "num_trainable": model.num_trainable,
        "left_out": dict(model.left_out),
    }


def _rows(rows: Sequence[object]) -> list[Json]:
    return [row.to_json() for row in rows[:_MOST_ROWS]]  # type: ignore[attr-defined]


def _ranks(run: Run) -> list[int]:
    """The ranks that recorded something; 0 is the run itself."""
    try:
        names = opening.names(run.path / layout.RANKS, depth=layout.IN_RUN)
    except OSError:
        names = []
    return sorted({0, *(int(name) for name in names if name.isdecimal() and name.isascii() and len(name) < 8)})


def _evaluations(run: Run) -> list[int]:
    if not run.has("val/loss"):
        return []
    steps = run.series("val/loss").step
    if len(steps) > _MOST_EVALUATIONS:
        steps = steps[np.unique(np.linspace(0, len(steps) - 1, _MOST_EVALUATIONS).round().astype(np.intp))]
    found: list[int] = steps.tolist()
    return found
