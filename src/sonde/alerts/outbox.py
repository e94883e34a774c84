"""What one channel has been told, is being told and is still to be told: values and pure functions of them."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from sonde.alerts.notices import Notice
from sonde.core.findings import Finding, Severity

Key = tuple[str, int]
"""Code and first step: a finding keeps both for life, while it gets worse and when it closes."""

_MOST_WAITING = 250
"""Findings that are not critical, kept for a channel that cannot be told; of further ones only the number is."""


class Waiting(NamedTuple):
    """A finding to be told, and since when it waits."""

    finding: Finding
    since_s: float


class Told(NamedTuple):
    """What the channel knows of a finding."""

    severity: Severity
    by_name: bool
    """Whether it was listed, not only counted."""
    resolved: bool = False


class Outbox(NamedTuple):
    """Of one channel."""

    alarms: Mapping[Key, Waiting] = {}
    resolves: Mapping[Key, Waiting] = {}
    told: Mapping[Key, Told] = {}
    unlisted: int = 0
    """Findings that nobody has by name any more; the next message gives their number."""
    under_way: Notice | None = None
    last_s: float = float("-inf")
    """When something was sent."""


def key(finding: Finding) -> Key:
    """What a finding is known by."""
    return finding.code, finding.first_step


def take(outbox: Outbox, findings: Collection[Finding], now_s: float) -> Outbox:
    """After a look at findings: what is new, worse or over waits to be told; what is known changes nothing.

    A finding for which there is no room to wait costs an entry and a number: most of those of a storm.
    """
    if not findings:
        return outbox
    alarms, resolves = dict(outbox.alarms), dict(outbox.resolves)
    counted: dict[Key, Told] = {}
    num_counted = 0
    room = _MOST_WAITING - sum(waits.finding.severity is not Severity.CRITICAL for waits in alarms.values())
    under_way = outbox.under_way or Notice()
    flying = {key(finding): finding for finding in under_way.alarms}
    ending = {key(finding) for finding in under_way.resolved}
    for finding in findings:
        name, severity = key(finding), finding.severity
        waits = alarms.get(name)
        if waits is not None:
            before = waits.finding
            if severity >= before.severity and finding.last_step >= before.last_step:
                alarms[name] = Waiting(finding, waits.since_s)
                room += severity is Severity.CRITICAL and before.severity is not Severity.CRITICAL
            continue
        told, flies = counted.get(name) or outbox.told.get(name), flying.get(name)
        if (told is None or severity > told.severity) and (flies is None or severity > flies.severity):
            if severity is Severity.CRITICAL or room > 0:
                alarms[name] = Waiting(finding, now_s)
                room -= severity is not Severity.CRITICAL
            else:
                counted[name] = _by_number(told, severity)
                num_counted += 1
            resolves.pop(name, None)  # the alarm says that it is over, where it is
        elif not finding.open and name not in resolves and name not in ending:
            by_name = flies.open if flies else told is not None and told.by_name and not told.resolved
            if by_name:
                resolves[name] = Waiting(finding, now_s)
    return outbox._replace(
        alarms=alarms,
        resolves=resolves,
        told={**outbox.told, **counted} if counted else outbox.told,
        unlisted=outbox.unlisted + num_counted,
    )


def compose(outbox: Outbox, listable: Collection[Key], resolvable: Collection[Key], most: int, now_s: float) -> Outbox:
    """With a message under way that lists at most `most` of these, the worst first; open ones before closed ones.

    Critical ones for which there is no room wait on, the others are counted.
    """
    ranked = sorted(listable, key=lambda name: _urgency(outbox.alarms[name].finding))
    listed, rest = ranked[:most], ranked[most:]
    follow = [name for name in rest if outbox.alarms[name].finding.severity is Severity.CRITICAL]
    over, more_over = list(resolvable)[:most], list(resolvable)[most:]
    outbox = count(outbox, set(rest) - set(follow))
    notice = Notice(
        alarms=tuple(outbox.alarms[name].finding for name in listed),
        resolved=tuple(outbox.resolves[name].finding for name in over),
        more=outbox.unlisted,
        more_resolved=len(more_over),
        to_follow=len(follow),
    )
    return outbox._replace(
        alarms=_without(outbox.alarms, listed),
        resolves=_without(outbox.resolves, resolvable),
        told={**outbox.told, **{name: outbox.told[name]._replace(resolved=True) for name in more_over}},
        unlisted=0,
        under_way=notice,
        last_s=now_s,
    )


def count(outbox: Outbox, names: Collection[Key]) -> Outbox:
    """With these told by their number only."""
    told = dict(outbox.told)
    for name in names:
        told[name] = _by_number(told.get(name), outbox.alarms[name].finding.severity)
    return outbox._replace(alarms=_without(outbox.alarms, names), told=told, unlisted=outbox.unlisted + len(names))


def delivered(outbox: Outbox) -> Outbox:
    """After the message under way has arrived."""
    assert outbox.under_way is not None
    told = dict(outbox.told)
    for finding in outbox.under_way.alarms:
        before = told.get(key(finding))
        # It may have got worse, and been counted, while the message was under way.
        worst = finding.severity if before is None else max(finding.severity, before.severity)
        told[key(finding)] = Told(worst, by_name=True, resolved=not finding.open)
    for finding in outbox.under_way.resolved:
        told[key(finding)] = told[key(finding)]._replace(resolved=True)
    return outbox._replace(told=told, under_way=None)


def returned(outbox: Outbox, since_s: float) -> Outbox:
    """After the channel has refused the message under way: all of it waits again, as if it came at `since_s`."""
    assert outbox.under_way is not None
    alarms, resolves = dict(outbox.alarms), dict(outbox.resolves)
    for finding in outbox.under_way.alarms:
        over = resolves.pop(key(finding), None)
        alarms.setdefault(key(finding), Waiting(over.finding if over else finding, since_s))
    for finding in outbox.under_way.resolved:
        if key(finding) not in alarms:
            resolves.setdefault(key(finding), Waiting(finding, since_s))
    return outbox._replace(
        alarms=alarms, resolves=resolves, unlisted=outbox.unlisted + outbox.under_way.more, under_way=None
    )


def num_untold(outbox: Outbox) -> int:
    """Findings that the channel does not know of, neither by name nor by number."""
    flying = len(outbox.under_way.alarms) + outbox.under_way.more if outbox.under_way else 0
    return len(outbox.alarms) + outbox.unlisted + flying


def _by_number(told: Told | None, severity: Severity) -> Told:
    return Told(severity, by_name=True) if told is not None and told.by_name else _COUNTED[severity]


_COUNTED = {severity: Told(severity, by_name=False) for severity in Severity}
"""One for all: those of a storm are the most that is kept."""


def _without(waiting: Mapping[Key, Waiting], names: Collection[Key]) -> Mapping[Key, Waiting]:
    gone = set(names)
    return {name: waits for name, waits in waiting.items() if name not in gone}


_URGENCY = {severity: place for place, severity in enumerate(reversed(Severity))}


def _urgency(finding: Finding) -> tuple[int, bool]:
    return _URGENCY[finding.severity], not finding.open
