"""What was found in a run while it was recorded, from its events."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sonde.core.errors import FormatError
from sonde.core.findings import Finding
from sonde.core.records import Event

_MOST = 500  # findings of a run that goes on for weeks; the latest are kept


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """What a run's events tell of its health.

    Args:
        findings: In the order in which they began, each as it was told last.
        not_measured: What could not be judged, and why.
        num_events: How many events were read.
    """

    findings: tuple[Finding, ...] = ()
    not_measured: tuple[str, ...] = ()
    num_events: int = 0


def recorded(events: Iterable[Event]) -> Recorded:
    """What the events tell; what was found later than a checkpoint that was gone back to does not count."""
    found: dict[str, Finding] = {}
    missing: dict[str, None] = {}
    count = 0
    for event in events:
        count += 1
        if event.kind == "finding":
            if (finding := finding_of(event)) is not None:
                found.pop(finding_id(finding), None)
                found[finding_id(finding)] = finding
                if len(found) > _MOST:
                    del found[next(iter(found))]
        elif event.kind == "finding-closed":
            _close(found, event)
        elif event.kind == "resumed" and event.step is not None:
            found = {key: finding for key, finding in found.items() if finding.first_step <= event.step}
        elif event.kind == "not-measured":
            missing[f"{event.data.get('tag')}: {event.data.get('reason')}"] = None
    findings = sorted(found.values(), key=lambda finding: (finding.first_step, finding.code))
    return Recorded(findings=tuple(findings), not_measured=tuple(sorted(missing)), num_events=count)


def finding_id(finding: Finding) -> str:
    """What addresses a finding within its run: `LOS002@1840`."""
    return f"{finding.code}@{finding.first_step}"


def finding_of(event: Event) -> Finding | None:
    """The finding of an event; None where somebody else's event has that name."""
    try:
        return Finding.from_json(dict(event.data))
    except FormatError:
        return None


def _close(found: dict[str, Finding], event: Event) -> None:
    key = f"{event.data.get('code')}@{event.data.get('first_step')}"
    if key in found:
        last = found[key].last_step if event.step is None else max(found[key].last_step, event.step)
        found[key] = replace(found[key], open=False, last_step=last)
