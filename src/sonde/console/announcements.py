"""What is said of an alarm while the training runs: its cause in full once, then a line for each further sign of it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, final

from sonde.core.findings import Finding
from sonde.core.groups import Group, groups

if TYPE_CHECKING:
    from sonde.core.causes import Cause


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
        self._told: dict[str, Cause | None] = {}
        """Of each rule the cause under which its alarm was told last."""

    def of(self, alarm: Finding, findings: Sequence[Finding]) -> str:
        """What to say: a line where an open alarm of its cause has been told, else the cause with all that shows it.

        Args:
            alarm: That is new, or has got worse.
            findings: All so far, each with its causes as they are known by now; this alarm among them.
        """
        alarms = [finding for finding in findings if finding.severity.is_alarm and finding.open]
        found = groups(alarms)
        group = next((one for one in found if any(_is_same(alarm, each) for each in one.findings)), None)
        if group is None:  # the findings are of another moment than the alarm
            (group,) = groups([alarm])
        before = {self._told[one.code] for one in group.findings if one.code in self._told and not _is_same(alarm, one)}
        self._told |= {one.code: group.cause for one in group.findings}
        if group.cause in before:
            return f"one more sign of {_called(group)}: {alarm.headline}"
        replaced = ", ".join("no known cause" if cause is None else cause.value for cause in sorted(before, key=str))
        return f"{group}\n  this takes the place of what was said of {replaced}" if replaced else str(group)


def _is_same(one: Finding, other: Finding) -> bool:
    return (one.code, one.first_step) == (other.code, other.first_step)


def _called(group: Group) -> str:
    return "a cause that is not known" if group.cause is None else group.name
