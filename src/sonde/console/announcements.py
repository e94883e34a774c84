"""What is said of an alarm while the training runs: its cause in full once, then a line for each further sign of it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, final

from sonde.core.findings import Finding
from sonde.core.groups import Group, groups

if TYPE_CHECKING:
    from sonde.core.causes import Cause
    from sonde.core.findings import Severity

_Key = tuple[str, int]


@final
class Announcements:
    """Remembers which alarm was told under which cause.

    Example:
        >>> from dataclasses import replace
        >>> from sonde.core.causes import Cause
        >>> from sonde.core.findings import Severity, Suspect
        >>> rate = Suspect(cause=Cause.LR_TOO_HIGH, confidence=0.8, because="steps are large")
        >>> spike = Finding(code="LOS002", name="loss-spike", severity=Severity.WARNING, first_step=7, last_step=9,
        ...                 open=True, message="loss 8.2 after 2.1", causes=(rate,))
        >>> larger = replace(spike, code="UPD001", name="updates-too-large", first_step=9)
        >>> told = Announcements()
        >>> told.of(spike, [spike]).partition(" (")[0]
        'warning: lr-too-high'
        >>> told.of(larger, [spike, larger])
        'one more sign of lr-too-high (confidence 0.8): UPD001 updates-too-large  warning  step 9'
    """

    def __init__(self) -> None:
        self._told: dict[_Key, tuple[Cause | None, Severity]] = {}
        """Of each alarm that is open the cause and the severity with which it was told last."""

    def of(self, alarm: Finding, findings: Sequence[Finding]) -> str:
        """What to say: a line where an open alarm of its cause has been told, else the cause with all that shows it.

        Nothing where this very alarm was among what showed the cause.

        Args:
            alarm: That is new, or has got worse.
            findings: All so far, each with its causes as they are known by now; this alarm among them.
        """
        alarms = {_key(finding): finding for finding in findings if finding.severity.is_alarm and finding.open}
        alarms.setdefault(_key(alarm), alarm)  # the findings may be of another moment
        group = next(one for one in groups(alarms.values()) if alarms[_key(alarm)] in one.findings)
        told = {key: said for key, said in self._told.items() if key in alarms}
        keys = [_key(one) for one in group.findings]
        before = {told[key][0] for key in keys if key in told}
        self._told = told | {_key(one): (group.cause, one.severity) for one in group.findings}
        if told.get(_key(alarm)) == self._told[_key(alarm)]:
            return ""
        if group.cause in before:
            return f"one more sign of {_called(group)}: {alarm.headline}"
        replaced = ", ".join("no known cause" if cause is None else cause.value for cause in sorted(before, key=str))
        return f"{group}\n  this takes the place of what was said of {replaced}" if replaced else str(group)


def _key(finding: Finding) -> _Key:
    return finding.code, finding.first_step


def _called(group: Group) -> str:
    return "a cause that is not known" if group.cause is None else group.name
