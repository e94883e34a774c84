"""Groups: the findings of one cause, told as one: the cause, what it is seen by, what to do about it once."""

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sonde.core import printable
from sonde.core.causes import Cause
from sonde.core.findings import Finding, Severity, Suspect
from sonde.core.remedies import Remedy
from sonde.core.strict_json import Json

_LINE = re.compile(r"\(([^()\s]+:\d+)\)")
"""A line of the user's code, as messages have it: `(train.py:42)`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """The findings that one cause explains; `groups` makes them. Printed, it is told once.

    Args:
        suspect: The cause, how sure it is and why; None where the cause is not known.
        findings: At least one alarm. The one that speaks most for the cause comes first, and information last.
        others: What else it may be, in order of likelihood; causes that have a group of their own are not among them.

    Example:
        >>> suspect = Suspect(cause=Cause.LR_SPIKE, confidence=0.8, because="the rate rose from 0.001 to 0.7")
        >>> finding = Finding(code="LOS002", name="loss-spike", severity=Severity.WARNING, first_step=7, last_step=9,
        ...                   open=True, message="loss 8.2 after 2.1", causes=(suspect,))
        >>> print(groups([finding])[0])
        warning: lr-spike (confidence 0.8), since step 7
          the learning rate jumped up for a while, by accident or by a restart
          because the rate rose from 0.001 to 0.7
          seen by:
            LOS002 loss-spike  warning  step 7
              loss 8.2 after 2.1
          more: sonde explain LOS002
    """

    suspect: Suspect | None
    findings: tuple[Finding, ...]
    others: tuple[Suspect, ...] = ()

    @property
    def cause(self) -> Cause | None:
        """None where it is not known."""
        return None if self.suspect is None else self.suspect.cause

    @property
    def confidence(self) -> float:
        """Of the cause, from 0 to 1; 0 where it is not known."""
        return 0.0 if self.suspect is None else self.suspect.confidence

    @property
    def alarms(self) -> tuple[Finding, ...]:
        """Its findings without information."""
        return tuple(finding for finding in self.findings if finding.severity.is_alarm)

    @property
    def severity(self) -> Severity:
        """That of its worst finding."""
        return max(finding.severity for finding in self.findings)

    @property
    def first_step(self) -> int:
        """Since when there has been an alarm."""
        return min(finding.first_step for finding in self.alarms)

    @property
    def last_step(self) -> int:
        """Until when there was one."""
        return max(finding.last_step for finding in self.alarms)

    @property
    def open(self) -> bool:
        """Whether one of its alarms still holds."""
        return any(finding.open for finding in self.alarms)

    @property
    def place(self) -> str | None:
        """The line of code that the reason names, else the parameter or module in which the reason was seen.

        None where the cause is not known, or where none of its findings is the reason.
        """
        return self._line or self._seen_in

    @property
    def _line(self) -> str | None:
        line = None if self.suspect is None else _LINE.search(self.suspect.because)
        return None if line is None else line[1]

    @property
    def _seen_in(self) -> str | None:
        first = self.findings[0]
        return first.where[0] if first.where and self.is_reason(first) else None

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        """What to do about the cause, the best first: those of the first finding that is surely laid to it."""
        led = (finding for finding in self.findings if self.cause is not None and _first(finding) is self.cause)
        return next((finding.remedies for finding in led if finding.remedies), ())

    @property
    def name(self) -> str:
        """The cause with its confidence."""
        return "cause not known" if self.suspect is None else f"{self.cause} (confidence {self.confidence:.2g})"

    @property
    def when(self) -> str:
        """The steps from its first alarm on."""
        if self.open:
            return f"since step {self.first_step:,}"
        if self.last_step == self.first_step:
            return f"step {self.first_step:,} (closed)"
        return f"steps {self.first_step:,} to {self.last_step:,} (closed)"

    @property
    def summary(self) -> str:
        """All of it in a line."""
        first, num = self.findings[0], len({finding.code for finding in self.alarms}) - 1
        more = f" and {num} more" if num else ""
        return printable.one_line(f"{self.severity}: {self.name}, {self.when}: {first.code} {first.name}{more}")

    def __str__(self) -> str:
        place = f", at {self._line}" if self._line else f", seen in `{self._seen_in}`" if self._seen_in else ""
        body = [
            *self._said_cause(),
            "seen by:",
            *(textwrap.indent(line, "  ") for alike in self.by_code() for line in self._said(alike)),
            *(f"{'or' if i else 'try'}: {remedy}" for i, remedy in enumerate(self.remedies)),
            f"more: sonde explain {self.findings[0].code}",
        ]
        head = printable.one_line(f"{self.severity}: {self.name}, {self.when}{place}")
        return "\n".join([head, *(textwrap.indent(printable.lines(line), "  ") for line in body)])

    def is_reason(self, finding: Finding) -> bool:
        """Whether it is the finding that speaks most for the cause: its message is the reason."""
        return self.suspect is not None and _tells(finding, self.suspect)

    def by_code(self) -> list[list[Finding]]:
        """Its findings, those of one code together."""
        return by_code(self.findings)

    def _said_cause(self) -> Iterator[str]:
        if self.suspect is not None:
            yield self.suspect.cause.meaning
            first = self.findings[0]
            yield f"because {first.message if self.is_reason(first) else self.suspect.because}"
        elif tags := ", ".join(dict.fromkeys(item.tag for finding in self.alarms[:1] for item in finding.evidence)):
            yield f"look at {tags} around step {self.alarms[0].first_step:,}"
        for other in self.others:
            if other.is_sure:
                yield f"possible as well: {other.cause} (confidence {other.confidence:.2g}): {other.cause.meaning}"
        if unsure := ", ".join(f"{one.cause} ({one.confidence:.2g})" for one in self.others if not one.is_sure):
            yield f"{'perhaps' if self.suspect is None else 'less likely'}: {unsure}"

    def _said(self, alike: Sequence[Finding]) -> Iterator[str]:
        first, times = alike[0], len(alike) - 1
        yield first.headline + (f", and {times} other time{'s' * (times > 1)}" if times else "")
        if not self.is_reason(first):
            yield textwrap.indent(first.message, "  ")

    def to_json(self, findings: Sequence[Finding]) -> dict[str, Json]:
        """As plain data, its findings as their places among these."""
        return {
            "cause": None if self.cause is None else self.cause.value,
            "confidence": self.confidence,
            "because": None if self.suspect is None else self.suspect.because,
            "place": self.place,
            "severity": self.severity.value,
            "first_step": self.first_step,
            "open": self.open,
            "findings": [i for one in self.findings for i, other in enumerate(findings) if other is one],
            "others": [suspect.to_json() for suspect in self.others],
            "remedies": [remedy.to_json() for remedy in self.remedies],
        }


def by_code(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Findings of one code together, of these the worst and latest first: a spike may come a hundred times."""
    kinds: dict[str, list[Finding]] = {}
    for finding in findings:
        kinds.setdefault(finding.code, []).append(finding)
    return [sorted(alike, key=lambda one: (one.severity, one.first_step), reverse=True) for alike in kinds.values()]


def groups(findings: Iterable[Finding]) -> tuple[Group, ...]:
    """The findings, those of one cause together: the worst group first, of these the surest.

    An alarm goes to the cause that it names first, if it is sure of it (a confidence of 0.3 at least). One that is not
    sure goes to the first of the causes it names that surely explains another alarm at the same time; where there is
    none, to the one group whose cause is not known. Information goes where it is sure, and else to no group: it is a
    note.

    Causes that are merely possible never join two alarms that are sure of different ones, so that nothing is joined
    falsely for the sake of fewer groups.

    Args:
        findings: Of one run, open or closed.
    """
    found = list(findings)
    alarms = [finding for finding in found if finding.severity.is_alarm]
    led: dict[Cause | None, list[Finding]] = {}
    for alarm in alarms:
        if (cause := _first(alarm)) is not None:
            led.setdefault(cause, []).append(alarm)
    sure = {cause: tuple(members) for cause, members in led.items()}
    for alarm in alarms:
        if _first(alarm) is None:
            named = (suspect.cause for suspect in alarm.causes)
            met = (cause for cause in named if any(_overlap(alarm, other) for other in sure.get(cause, ())))
            led.setdefault(next(met, None), []).append(alarm)
    for finding in found:
        if not finding.severity.is_alarm and (cause := _first(finding)) in led and cause is not None:
            led[cause].append(finding)
    made = [_made(cause, members, sure) for cause, members in led.items()]
    return tuple(sorted(made, key=lambda group: (group.severity, group.confidence), reverse=True))


def _made(cause: Cause | None, members: Sequence[Finding], sure: Iterable[Cause | None]) -> Group:
    suspects = [suspect for finding in members for suspect in finding.causes]
    own = [suspect for suspect in suspects if suspect.cause is cause]
    suspect = max(own, key=lambda one: one.confidence, default=None)
    known = set(sure)
    others = [other for other in members[0].causes if other.cause is not cause and other.cause not in known]
    order = sorted(members, key=lambda one: (not one.severity.is_alarm, suspect is None or not _tells(one, suspect)))
    return Group(suspect=suspect, findings=tuple(order), others=tuple(others))


def _first(finding: Finding) -> Cause | None:
    """The cause that a finding is sure of."""
    return finding.causes[0].cause if finding.causes and finding.causes[0].is_sure else None


def _tells(finding: Finding, suspect: Suspect) -> bool:
    return suspect.because.startswith(finding.message)


def _overlap(one: Finding, other: Finding) -> bool:
    """Whether both held at the same time; what is open still holds."""
    return (one.open or one.last_step >= other.first_step) and (other.open or other.last_step >= one.first_step)
