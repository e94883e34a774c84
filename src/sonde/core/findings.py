"""Findings: what is wrong, where, since when, on what evidence, why, and what to do about it.

Their JSON is a promise to other programs (docs/reference/findings.md): keys may be added, never renamed or
removed without a new schema number.
"""

import enum
import numbers
import operator
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, overload

from sonde.core import printable
from sonde.core.causes import Cause
from sonde.core.errors import FormatError
from sonde.core.json_fields import flag, list_of, member, one_of, refusals_as_format_errors, text, whole
from sonde.core.own_settings import OwnSettings
from sonde.core.remedies import Remedy
from sonde.core.strict_json import Json, number, to_number
from sonde.core.tags import check_tag

if TYPE_CHECKING:
    from sonde.core.groups import Group

_SURE = 0.3  # below it, the cause that is named first is wrong more often than not
_CODE = re.compile(r"[A-Z]{3}[0-9]{3}")
_KEBAB = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")


class Severity(enum.StrEnum):
    """How bad a finding is: `INFO` < `WARNING` < `CRITICAL`.

    Example:
        >>> max(Severity.CRITICAL, Severity.INFO), Severity.INFO.is_alarm
        (<Severity.CRITICAL: 'critical'>, False)
    """

    INFO = "info"
    """Worth knowing; never an alarm."""
    WARNING = "warning"
    """Training is impaired, or will be."""
    CRITICAL = "critical"
    """Training is being lost."""

    @property
    def is_alarm(self) -> bool:
        """Whether it counts as an alarm: warning or above."""
        return self >= Severity.WARNING

    # All four, since `str` brings its own of each, by which "critical" comes before "info".
    def __lt__(self, other: str) -> bool:
        return self._rank < Severity(other)._rank

    def __le__(self, other: str) -> bool:
        return self._rank <= Severity(other)._rank

    def __gt__(self, other: str) -> bool:
        return self._rank > Severity(other)._rank

    def __ge__(self, other: str) -> bool:
        return self._rank >= Severity(other)._rank

    @property
    def _rank(self) -> int:
        return _RANKS[self]


_RANKS = {severity: rank for rank, severity in enumerate(Severity)}


class Verdict(enum.StrEnum):
    """A run in one word, the same everywhere.

    Example:
        >>> [verdict.words for verdict in Verdict]
        ['healthy', 'healthy, with notes', 'not enough to judge', 'warning', 'critical']
    """

    HEALTHY = "healthy"
    """There is no finding."""
    INFO = "info"
    """There is something worth knowing, and no alarm."""
    UNKNOWN = "unknown"
    """There is no alarm, and not enough was recorded for that to mean something."""
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def words(self) -> str:
        """As it is said to people."""
        return {Verdict.INFO: "healthy, with notes", Verdict.UNKNOWN: "not enough to judge"}.get(self, self.value)


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """A measured number that speaks for a finding, and the series to look at.

    Args:
        tag: The series.
        step: Where in the series.
        value: What was measured, NaN and infinities included.
        expected: What the series' own history or theory led to expect; None where nothing can be said.

    Example:
        >>> Evidence(tag="grad/norm", step=1840, value=float("inf"), expected=2.1).to_json()
        {'tag': 'grad/norm', 'step': 1840, 'value': 'Infinity', 'expected': 2.1}
    """

    tag: str
    step: int
    value: float
    expected: float | None = None

    def __post_init__(self) -> None:
        check_tag(self.tag)
        object.__setattr__(self, "step", _step("Evidence(step=...)", self.step))
        object.__setattr__(self, "value", _real("Evidence(value=...)", self.value))
        if self.expected is not None:
            object.__setattr__(self, "expected", _real("Evidence(expected=...)", self.expected))

    def to_json(self) -> dict[str, Json]:
        return {
            "tag": self.tag,
            "step": self.step,
            "value": number(self.value),
            "expected": None if self.expected is None else number(self.expected),
        }

    @classmethod
    def from_json(cls, data: Json) -> "Evidence":
        with refusals_as_format_errors():
            return cls(
                tag=member(data, "tag", text),
                step=member(data, "step", whole),
                value=member(data, "value", to_number),
                expected=member(data, "expected", lambda value: None if value is None else to_number(value)),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Suspect:
    """A cause under suspicion.

    Args:
        cause: Which.
        confidence: From 0 to 1; larger means more likely.
        because: What in this run points to it.

    Example:
        >>> print(Suspect(cause=Cause.LR_TOO_HIGH, confidence=0.8, because="update ratio rose 3×"))
        lr-too-high (0.8): update ratio rose 3×
    """

    cause: Cause
    confidence: float
    because: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "cause", Cause(self.cause))
        object.__setattr__(self, "confidence", _real("Suspect(confidence=...)", self.confidence))
        if not 0 <= self.confidence <= 1:
            raise ValueError(f"`Suspect(confidence=...)` must be in [0, 1], got {self.confidence}.")
        _check_said("Suspect(because=...)", self.because)

    @property
    def is_sure(self) -> bool:
        """Whether it is likely enough to act upon: a confidence of 0.3 at least."""
        return self.confidence >= _SURE

    def __str__(self) -> str:
        return f"{self.cause} ({self.confidence:.2g}): {self.because}"

    def to_json(self) -> dict[str, Json]:
        return {"cause": self.cause.value, "confidence": self.confidence, "because": self.because}

    @classmethod
    def from_json(cls, data: Json) -> "Suspect":
        with refusals_as_format_errors():
            return cls(
                cause=member(data, "cause", one_of(Cause)),
                confidence=member(data, "confidence", to_number),
                because=member(data, "because", text),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """Something that is wrong with a run, or worth knowing; printed, it reads like a compiler's diagnostic.

    A finding is opened once, updated (`dataclasses.replace`) and closed.

    Args:
        code: Three capital letters and three digits; names the rule.
        name: The condition in kebab-case, such as "exploding-gradients".
        severity: How bad it is.
        first_step: Since when.
        last_step: Until when it has been seen; at least `first_step`.
        open: Whether it still holds.
        where: Parameters or modules concerned, the most telling first; empty where it is the run as a whole.
        message: What is wrong, with its numbers.
        evidence: The numbers and their series.
        causes: Suspects in order of likelihood, each cause once.
        remedies: What to do, the best first.

    Example:
        >>> finding = Finding(
        ...     code="GRD001",
        ...     name="exploding-gradients",
        ...     severity=Severity.CRITICAL,
        ...     first_step=1840,
        ...     last_step=1852,
        ...     open=True,
        ...     where=("blocks.11.mlp.up.weight", "blocks.10.mlp.up.weight"),
        ...     message="global gradient norm 417, 38 robust deviations above its last 200 steps",
        ...     causes=(Suspect(cause=Cause.LR_TOO_HIGH, confidence=0.8, because="update ratio rose 3×"),),
        ... )
        >>> print(finding)
        GRD001 exploding-gradients  critical  step 1840  blocks.11.mlp.up.weight (+1)
          global gradient norm 417, 38 robust deviations above its last 200 steps
          likely: lr-too-high (0.8): update ratio rose 3×
          more: sonde explain GRD001
        >>> Finding.from_json(finding.to_json()) == finding
        True
    """

    code: str
    name: str
    severity: Severity
    first_step: int
    last_step: int
    open: bool
    where: tuple[str, ...] = ()
    message: str
    evidence: tuple[Evidence, ...] = ()
    causes: tuple[Suspect, ...] = ()
    remedies: tuple[Remedy, ...] = ()

    def __post_init__(self) -> None:
        if not _CODE.fullmatch(self.code):
            raise ValueError(
                "`Finding(code=...)` must be three capital letters and three digits, such as ABC001, "
                f"got {self.code!r}."
            )
        if not _KEBAB.fullmatch(self.name):
            raise ValueError(
                f"`Finding(name=...)` must be lower-case words joined by '-', such as loss-spike, got {self.name!r}."
            )
        _check_said("Finding(message=...)", self.message)
        object.__setattr__(self, "severity", Severity(self.severity))
        object.__setattr__(self, "first_step", _step("Finding(first_step=...)", self.first_step))
        object.__setattr__(self, "last_step", _step("Finding(last_step=...)", self.last_step))
        if self.last_step < self.first_step:
            raise ValueError(
                f"`Finding(last_step=...)` must be at least its first_step, {self.first_step}, got {self.last_step}."
            )
        if self.open not in (True, False):
            raise TypeError(f"`Finding(open=...)` must be True or False, got {self.open!r}.")
        object.__setattr__(self, "open", bool(self.open))  # rules compute with numpy, whose booleans are not JSON
        object.__setattr__(self, "where", _tuple_of(str, "Finding(where=...)", self.where))
        object.__setattr__(self, "evidence", _tuple_of(Evidence, "Finding(evidence=...)", self.evidence))
        object.__setattr__(self, "causes", _tuple_of(Suspect, "Finding(causes=...)", self.causes))
        object.__setattr__(self, "remedies", _tuple_of(Remedy, "Finding(remedies=...)", self.remedies))
        confidences = [suspect.confidence for suspect in self.causes]
        if confidences != sorted(confidences, reverse=True):
            raise ValueError(f"`Finding(causes=...)` must be in order of likelihood, got confidences {confidences}.")
        if len({suspect.cause for suspect in self.causes}) < len(self.causes):
            causes = ", ".join(suspect.cause for suspect in self.causes)
            raise ValueError(f"`Finding(causes=...)` must have each cause once, got {causes}.")

    @property
    def headline(self) -> str:
        """What, how bad, since when and where, in a line."""
        head = f"{self.code} {self.name}  {self.severity}  {self._when}"
        if not self.where:
            return head
        others = len(self.where) - 1
        return head + f"  {printable.one_line(self.where[0])}" + (f" (+{others})" if others else "")

    def __str__(self) -> str:
        body = [
            self.message,
            *self._said_causes(),
            *(f"try {remedy}" for remedy in self.remedies),
            f"more: sonde explain {self.code}",
        ]
        return "\n".join([self.headline, *(textwrap.indent(printable.lines(line), "  ") for line in body)])

    @property
    def brief(self) -> str:
        """The headline and what is wrong, without causes and remedies."""
        return f"{self.headline}\n{textwrap.indent(printable.lines(self.message), '  ')}"

    def _said_causes(self) -> Iterator[str]:
        first = "likely"
        if self.causes and not self.causes[0].is_sure:
            first = "perhaps"
            tags = ", ".join(dict.fromkeys(item.tag for item in self.evidence))
            yield "cause not known" + (f"; look at {tags} around step {self.first_step}" if tags else "")
        for i, suspect in enumerate(self.causes):
            yield f"{'or'.rjust(len(first)) if i else first}: {suspect}"

    @property
    def _when(self) -> str:
        if self.open:
            return f"step {self.first_step}"
        span = (
            f"step {self.first_step}"
            if self.first_step == self.last_step
            else f"steps {self.first_step}–{self.last_step}"
        )
        return f"{span} (closed)"

    def to_json(self) -> dict[str, Json]:
        return {
            "code": self.code,
            "name": self.name,
            "severity": self.severity.value,
            "first_step": self.first_step,
            "last_step": self.last_step,
            "open": self.open,
            "where": list(self.where),
            "message": self.message,
            "evidence": [item.to_json() for item in self.evidence],
            "causes": [suspect.to_json() for suspect in self.causes],
            "remedies": [remedy.to_json() for remedy in self.remedies],
        }

    @classmethod
    def from_json(cls, data: Json) -> "Finding":
        """The finding that `to_json` wrote; further keys are ignored.

        Raises:
            FormatError: a key is missing or holds something else; the message names it.
        """
        with refusals_as_format_errors():
            return cls(
                code=member(data, "code", text),
                name=member(data, "name", text),
                severity=member(data, "severity", one_of(Severity)),
                first_step=member(data, "first_step", whole),
                last_step=member(data, "last_step", whole),
                open=member(data, "open", flag),
                where=member(data, "where", list_of(text)),
                message=member(data, "message", text),
                evidence=member(data, "evidence", list_of(Evidence.from_json)),
                causes=member(data, "causes", list_of(Suspect.from_json)),
                remedies=member(data, "remedies", list_of(Remedy.from_json)),
            )


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Diagnosis:
    """All that was found in a run. A sequence of its findings; printed, those of one cause are told as one.

    An empty one is false, as an empty list is: `if sonde.diagnose(run):` asks whether anything was found, a note
    included. Whether the run is healthy, its `verdict` says.

    Args:
        run: Name or path of the run.
        steps: How many steps were looked at.
        findings: What was found, closed findings included.
        not_measured: What could not be judged, in words: a healthy verdict does not cover it.
        own_settings: What the run's own settings changed about it.
        not_enough: Why there is not enough to judge, in words; none where there is. Alarms count all the same.
        rule_problems: Why rules of other packages did not judge as they did while the run was recorded, or at all.

    Example:
        >>> print(Diagnosis(run="runs/demo", steps=500, not_measured=("activations",)))
        runs/demo: healthy after 500 steps
        not measured: activations
        >>> print(Diagnosis(run="runs/demo", steps=500, not_enough=("no loss was recorded",)))
        runs/demo: not enough to judge after 500 steps: no loss was recorded
    """

    schema: ClassVar[int] = 2

    run: str
    steps: int
    findings: tuple[Finding, ...] = ()
    not_measured: tuple[str, ...] = ()
    own_settings: OwnSettings = field(default_factory=OwnSettings)
    not_enough: tuple[str, ...] = ()
    rule_problems: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_said("Diagnosis(run=...)", self.run)
        object.__setattr__(self, "steps", _step("Diagnosis(steps=...)", self.steps))
        object.__setattr__(self, "findings", _tuple_of(Finding, "Diagnosis(findings=...)", self.findings))
        object.__setattr__(self, "not_measured", _tuple_of(str, "Diagnosis(not_measured=...)", self.not_measured))
        object.__setattr__(self, "not_enough", _tuple_of(str, "Diagnosis(not_enough=...)", self.not_enough))
        problems = _tuple_of(str, "Diagnosis(rule_problems=...)", self.rule_problems)
        object.__setattr__(self, "rule_problems", problems)

    @property
    def verdict(self) -> Verdict:
        """The severity of the worst finding, open or closed; `unknown` where no alarm means nothing."""
        worst = max((finding.severity for finding in self.findings), default=None)
        if self.not_enough and not (worst is not None and worst.is_alarm):
            return Verdict.UNKNOWN
        return Verdict.HEALTHY if worst is None else Verdict(worst.value)

    @property
    def said(self) -> str:
        """The verdict in words, with the reasons where there is not enough to judge."""
        why = f": {'; '.join(self.not_enough)}" if self.verdict is Verdict.UNKNOWN else ""
        words = self.verdict.words
        return f"{words}{',' if ',' in words else ''} after {self.steps:,} step{'s' * (self.steps != 1)}{why}"

    @property
    def groups(self) -> "tuple[Group, ...]":
        """The alarms by their causes, the worst first, each with the information that goes with it."""
        from sonde.core.groups import groups  # which are made of findings

        return groups(self.findings)

    @property
    def lead(self) -> "Group | None":
        """The group to begin with: the first whose alarms still hold, else the first; None where there is no alarm."""
        found = self.groups
        return next((group for group in found if group.open), found[0] if found else None)

    @property
    def notes(self) -> tuple[Finding, ...]:
        """What is only worth knowing, and belongs to no alarm."""
        grouped = {id(finding) for group in self.groups for finding in group.findings}
        return tuple(finding for finding in self.findings if id(finding) not in grouped)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    @overload
    def __getitem__(self, at: int) -> Finding: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Finding, ...]: ...
    def __getitem__(self, at: int | slice) -> Finding | tuple[Finding, ...]:
        return self.findings[at]

    def __repr__(self) -> str:
        codes = ", ".join(dict.fromkeys(finding.code for finding in self.findings))
        return f"Diagnosis(run={self.run!r}, verdict={self.verdict.value!r}, steps={self.steps}, findings=[{codes}])"

    def _repr_html_(self) -> str:
        """For notebooks."""
        from sonde.core.diagnosis_fragment import fragment  # which is of diagnoses

        return fragment(self)

    def __str__(self) -> str:
        lines = [f"{group}\n" for group in self.groups]
        lines += [f"{note.brief}\n" for note in self.notes]
        lines.append(printable.one_line(f"{self.run}: {self.said}"))
        if self.own_settings:
            lines[-1] += f", judged by the run's own settings: {self.own_settings}"
        if self.not_measured:
            lines.append(f"not measured: {printable.one_line(', '.join(self.not_measured))}")
        lines += map(printable.one_line, self.rule_problems)
        return "\n".join(lines)

    def to_json(self) -> dict[str, Json]:
        return {
            "schema": self.schema,
            "run": self.run,
            "verdict": self.verdict.value,
            "steps": self.steps,
            "findings": [finding.to_json() for finding in self.findings],
            "groups": [group.to_json(self.findings) for group in self.groups],
            "not_measured": list(self.not_measured),
            "own_settings": self.own_settings.to_json(),
            "not_enough": list(self.not_enough),
            "rule_problems": list(self.rule_problems),
        }

    @classmethod
    def from_json(cls, data: Json) -> "Diagnosis":
        """The diagnosis that `to_json` wrote; further keys are ignored, and groups are made anew.

        Raises:
            FormatError: it has a newer schema, or a key is missing or holds something else; the message
                names it.
        """
        schema = member(data, "schema", whole)
        if schema > cls.schema:  # asked first: nothing else of a newer one can be trusted
            raise FormatError(
                f"schema: {schema} is newer than {cls.schema}, the newest that this version of Sonde reads; "
                "upgrade with: pip install --upgrade sonde"
            )
        if schema < 1:
            raise FormatError(f"schema: expected 1 to {cls.schema}, got {schema}.")
        with refusals_as_format_errors():
            diagnosis = cls(
                run=member(data, "run", text),
                steps=member(data, "steps", whole),
                findings=member(data, "findings", list_of(Finding.from_json)),
                not_measured=member(data, "not_measured", list_of(text)),
                # Diagnoses of before have none of these.
                own_settings=member(data, "own_settings", OwnSettings.from_json)
                if "own_settings" in data
                else OwnSettings(),
                not_enough=member(data, "not_enough", list_of(text)) if "not_enough" in data else (),
                rule_problems=member(data, "rule_problems", list_of(text)) if "rule_problems" in data else (),
            )
        verdict = member(data, "verdict", one_of(Verdict))
        if verdict is not diagnosis.verdict:
            raise FormatError(f"verdict: by the findings it is {diagnosis.verdict}, got {verdict}.")
        return diagnosis


def _step(argument: str, value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"`{argument}` must be a whole number, got {value!r}.")
    step = operator.index(value)  # numpy integers become plain ones, which JSON knows
    if step < 0:
        raise ValueError(f"`{argument}` must be at least 0, got {step}.")
    return step


def _real(argument: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"`{argument}` must be a number, got {value!r}.")
    return float(value)


def _check_said(argument: str, value: Any) -> None:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"`{argument}` must say something, got {value!r}.")


def _tuple_of(kind: type, argument: str, values: Iterable[Any]) -> tuple[Any, ...]:
    if isinstance(values, str):  # else its letters would pass for names
        raise TypeError(f"`{argument}` must be a sequence of {kind.__name__}, got the text {values!r}.")
    members = tuple(values)
    for value in members:
        if not isinstance(value, kind):
            raise TypeError(f"`{argument}` must be a sequence of {kind.__name__}, got {value!r} among them.")
    return members
