"""What the diagnosis says of one recorded run, laid beside the truth."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.faults.harm import first_harm
from benchmarks.faults.scenario import Scenario

import sonde
from sonde.core.errors import TagNotFound
from sonde.core.findings import Finding, Severity
from sonde.core.remedies import Remedy

FEW_STEPS = 20
"""With fewer finite losses before the first non-finite one there is no time for a warning."""


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """A finding as it was told while the run went on: opened, or become worse.

    Args:
        step: Whose rows made it known.
        code: Of the finding.
        critical: Whether it is critical, not a warning.
        where: The parameter or module named first, "" where it is the run as a whole.
    """

    step: int
    code: str
    critical: bool = False
    where: str = ""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """A run, the truth about it and what was said of it.

    Args:
        name: Of the scenario.
        seed: Of the run.
        kind: `faulty`, `twin` or `healthy`.
        cause: The truth, "" where nothing is wrong.
        also: Further answers that are as right.
        onset: The step from which on the fault acts.
        harm: The step from which on the run is worse than its twin; None where it never is, or nobody looked.
        hard: Whether it is to be found within 5 steps.
        epoch_steps: Steps between evaluations, None where there were fewer than two.
        first_loss: Of the run, before anything was learned.
        nonfinite_step: The first with a non-finite loss.
        finite_steps: Losses before that.
        nonfinite_parameters: Those that became non-finite first, by the oracle; None where nobody looked.
        alarms: In the order in which they were told.
        codes: Of the alarms that the final diagnosis holds, the most telling first.
        infos: Codes of the findings that are no alarm.
        causes: Suspects of the final diagnosis, most likely first.
        confidence: Of the first.
        action: Of the first remedy, with its values, "" where there is none.
        remedy_args: Its values.
        remedy_cause: The cause that the remedy is for.
    """

    name: str
    seed: int
    kind: str
    cause: str
    also: tuple[str, ...] = ()
    onset: int = 0
    harm: int | None = None
    hard: bool = False
    epoch_steps: int | None = None
    first_loss: float | None = None
    nonfinite_step: int | None = None
    finite_steps: int = 0
    nonfinite_parameters: tuple[str, ...] | None = None
    alarms: tuple[Alarm, ...] = ()
    codes: tuple[str, ...] = ()
    infos: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    confidence: float | None = None
    action: str = ""
    remedy_args: dict[str, Any] = field(default_factory=dict)
    remedy_cause: str = ""

    @property
    def right(self) -> frozenset[str]:
        """All right answers."""
        return frozenset({self.cause, *self.also} - {""})

    @property
    def first(self) -> bool:
        """Whether the first suspect is right."""
        return bool(self.causes) and self.causes[0] in self.right

    @property
    def second(self) -> bool:
        """Whether one of the first two is."""
        return not self.right.isdisjoint(self.causes[:2])

    @property
    def delay(self) -> int | None:
        """Steps from the onset to the first alarm after it; None where there was none.

        Trainings and Sonde may count from 0 or 1, so the step before the onset counts as it.
        """
        steps = [alarm.step - self.onset for alarm in self.alarms if alarm.step >= self.onset - 1]
        return max(0, min(steps)) if steps else None

    @property
    def detected(self) -> bool:
        """Whether an alarm of after the onset is left in the final diagnosis."""
        return self.delay is not None and bool(self.codes)

    @property
    def early(self) -> bool:
        """Whether there was an alarm before there was anything to be alarmed about."""
        return any(alarm.step < self.onset - 1 for alarm in self.alarms)

    @property
    def in_time(self) -> bool:
        """Whether it was found within 5 steps where it is hard, else within 50 or an epoch."""
        limit = 5 if self.hard else max(50, self.epoch_steps or 0)
        return self.delay is not None and self.delay <= limit

    @property
    def in_time_of_harm(self) -> bool:
        """The same, counted from the first harm where that is later than the onset."""
        late = max(0, (self.harm or 0) - self.onset)
        limit = 5 if self.hard else max(50, self.epoch_steps or 0)
        return self.delay is not None and self.delay - late <= limit

    @property
    def lead(self) -> int | None:
        """Steps from the first alarm (not before the onset) to the first non-finite loss; None without one before."""
        if self.nonfinite_step is None:
            return None
        before = [a.step for a in self.alarms if self.onset - 1 <= a.step < self.nonfinite_step]
        return self.nonfinite_step - min(before) if before else None

    @property
    def diverges(self) -> bool:
        """Whether it went non-finite by itself, not by what it was fed."""
        return self.nonfinite_step is not None and self.kind == "faulty" and self.cause != "nonfinite-input"

    @property
    def foreseeable(self) -> bool:
        """Whether it went non-finite by itself, after steps enough for a warning."""
        return self.diverges and self.finite_steps >= FEW_STEPS

    @property
    def critical_in_time(self) -> bool:
        """Whether a critical finding came within 2 steps of the first non-finite loss, or before it."""
        return self.nonfinite_step is not None and any(
            alarm.critical and alarm.step <= self.nonfinite_step + 2 for alarm in self.alarms
        )

    @property
    def names_parameter(self) -> bool:
        """Whether the first finding that names a non-finite parameter names one of those that were so first."""
        named = [alarm.where for alarm in self.alarms if alarm.code in _OF_PARAMETERS and alarm.where]
        return bool(named) and named[0] in (self.nonfinite_parameters or ())

    def to_json(self) -> dict[str, Any]:
        """As plain data, with what follows from it."""
        follows = {name: getattr(self, name) for name in ("detected", "first", "second", "delay", "lead", "in_time")}
        return {**asdict(self), **follows}


_OF_PARAMETERS = ("GRD005", "WGT001")


def judge(
    scenario: Scenario, folder: Path, row: dict[str, Any], *, profile: Mapping[str, object] | None = None
) -> Judgement:
    """Diagnose a recorded run as a user would, noting what was known when.

    Args:
        scenario: The truth.
        folder: Of the run.
        row: What `run.py` wrote about it.
        profile: Settings of rules that are not as a user would have them.
    """
    run, alarms = sonde.load(folder), list[Alarm]()

    def note(finding: Finding) -> None:
        if finding.severity.is_alarm:
            where = finding.where[0] if finding.where else ""
            critical = finding.severity is Severity.CRITICAL
            alarms.append(Alarm(step=finding.last_step, code=finding.code, critical=critical, where=where))

    findings = sonde.diagnose(run, profile=profile, on_finding=note).findings
    raised = [finding for finding in findings if finding.severity.is_alarm]
    remedy, remedy_cause = first_remedy(raised)
    losses = run.series("loss") if run.tags("loss") else None
    nonfinite = row.get("nonfinite_step")
    parameters = row.get("nonfinite_parameters")
    return Judgement(
        name=scenario.name,
        seed=row["seed"],
        kind="healthy" if scenario.cause is None else "twin" if row["twin"] else "faulty",
        cause=scenario.cause or "",
        also=scenario.also,
        onset=_best_step(run) if scenario.turns else scenario.onset,
        harm=_harm(run, folder),
        hard=scenario.hard,
        epoch_steps=_epoch_steps(run),
        nonfinite_step=nonfinite,
        first_loss=float(losses.value[0]) if losses is not None and math.isfinite(losses.value[0]) else None,
        finite_steps=0 if nonfinite is None or losses is None else int((losses.step < nonfinite).sum()),
        nonfinite_parameters=None if parameters is None else tuple(parameters),
        alarms=tuple(alarms),
        codes=tuple(finding.code for finding in raised),
        infos=tuple(finding.code for finding in findings if not finding.severity.is_alarm),
        causes=tuple(causes_of(raised)),
        confidence=raised[0].causes[0].confidence if raised and raised[0].causes else None,
        action=str(remedy.action) if remedy else "",
        remedy_args=dict(remedy.args) if remedy else {},
        remedy_cause=remedy_cause,
    )


def causes_of(raised: Sequence[Finding]) -> list[str]:
    """The suspects of all alarms: all of the first alarm's, then the first of each other one, each once."""
    firsts = [str(suspect.cause) for finding in raised[:1] for suspect in finding.causes]
    others = [str(finding.causes[0].cause) for finding in raised[1:] if finding.causes]
    return list(dict.fromkeys((*firsts, *others)))


def first_remedy(raised: Sequence[Finding]) -> tuple[Remedy | None, str]:
    """What a user would do first: the first remedy of the first alarm that has one, and the cause it is for."""
    for finding in raised:
        if finding.remedies:
            return finding.remedies[0], str(finding.causes[0].cause) if finding.causes else ""
    return None, ""


def _best_step(run: sonde.Run) -> int:
    """When validation was best, 0 where it never was finite."""
    found = run.series("val/loss") if run.tags("val/loss") else None
    if found is None or not np.isfinite(found.value).any():
        return 0
    return int(found.step[np.nanargmin(np.where(np.isfinite(found.value), found.value, np.nan))])


def _harm(run: sonde.Run, folder: Path) -> int | None:
    twin = folder.with_name(folder.name.replace("-faulty", "-twin"))
    return first_harm(run, sonde.load(twin)) if twin != folder and (twin / "run.json").exists() else None


def _epoch_steps(run: sonde.Run) -> int | None:
    try:
        steps = run.series("val/loss").step
    except TagNotFound:
        return None
    return int((steps[1:] - steps[:-1]).max()) if len(steps) > 1 else None
