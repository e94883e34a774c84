"""When which channel is told what: pure, with the time as an argument.

The promises:

- A finding is told once to each channel whose choice takes it, and once more for each time it gets worse.
- Findings of one moment (`group_s`) come in one message. No channel gets more messages than its limit allows, nor all
  of them together more than the total limit; what is held back comes with the next message, at most `most_findings`
  by name and the others as a number.
- A critical finding is told by name as long as the training runs, however long the limits hold it back.
- In quiet hours nothing is told, except critical findings where they break through.
- That a finding is over is told only to channels that were told its alarm by name.
- At the end of the training each channel gets a last message, outside of the limits where something critical waits; it
  counts what it does not list.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sonde.alerts import outbox as outboxes
from sonde.alerts.choices import Choice
from sonde.alerts.limits import Bucket, Limit
from sonde.alerts.notices import Notice
from sonde.alerts.outbox import Key, Outbox, Waiting
from sonde.alerts.quiet_hours import QuietHours
from sonde.core.findings import Finding, Severity

MOST_FINDINGS = 40
"""In one message: Slack takes 50 blocks."""


class PolicyState(NamedTuple):
    """What `Policy` remembers."""

    total: Bucket
    buckets: Mapping[str, Bucket]
    outboxes: Mapping[str, Outbox]


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """What is told when.

    Args:
        channels: Which findings each channel is told, by the channel's name.
        group_s: How long the first finding of a message waits for others.
        limit: For each channel by itself.
        total_limit: For all channels together.
        quiet_hours: When nothing is told; None for never.
        resolve: Whether it is told that a finding is over.
        most_findings: Listed in one message, 1 to 40.

    Example:
        >>> policy = Policy(channels={"slack": Choice()}, group_s=5)
        >>> finding = Finding(code="GRD001", name="exploding-gradients", severity=Severity.CRITICAL, first_step=7,
        ...                   last_step=7, open=True, message="norm 417")
        >>> state = policy.take(policy.init(0.0), [finding], 0.0)
        >>> policy.due_s(state, 0.0)
        5.0
        >>> state, notices = policy.decide(state, 5.0)
        >>> [finding.code for finding in notices["slack"].alarms]
        ['GRD001']
        >>> state = policy.take(policy.delivered(state, "slack"), [finding], 6.0)
        >>> policy.due_s(state, 6.0) is None
        True
    """

    channels: Mapping[str, Choice] = field(default_factory=dict)
    group_s: float = 5.0
    limit: Limit = field(default_factory=lambda: Limit(burst=5, refill_s=600))
    total_limit: Limit = field(default_factory=lambda: Limit(burst=10, refill_s=300))
    quiet_hours: QuietHours | None = None
    resolve: bool = True
    most_findings: int = 10

    def __post_init__(self) -> None:
        if not self.group_s >= 0:
            raise ValueError(f"`Policy(group_s=...)` must be at least 0 seconds, got {self.group_s}.")
        if not 1 <= self.most_findings <= MOST_FINDINGS:
            raise ValueError(f"`Policy(most_findings=...)` must be in [1, {MOST_FINDINGS}], got {self.most_findings}.")

    def init(self, now_s: float) -> PolicyState:
        """Nothing told, nothing to tell."""
        return PolicyState(
            self.total_limit.init(now_s),
            {name: self.limit.init(now_s) for name in self.channels},
            {name: Outbox() for name in self.channels},
        )

    def take(
        self, state: PolicyState, findings: Collection[Finding], now_s: float, *, num_lost: int = 0
    ) -> PolicyState:
        """After a look at findings, in any number and as often as one likes.

        Args:
            state: So far.
            findings: As they are now, open or closed.
            now_s: Seconds since 1970.
            num_lost: Findings that nobody had room to keep: they are told by their number.
        """
        taken = {}
        for name, choice in self.channels.items():
            outbox = outboxes.take(state.outboxes[name], [f for f in findings if choice.takes(f)], now_s)
            taken[name] = outbox._replace(
                resolves=outbox.resolves if self.resolve else {}, unlisted=outbox.unlisted + num_lost
            )
        return state._replace(outboxes=taken)

    def decide(self, state: PolicyState, now_s: float) -> tuple[PolicyState, dict[str, Notice]]:
        """What is to be sent now, by channel; each is under way until `delivered` or `refused` says otherwise."""
        notices: dict[str, Notice] = {}
        ripe = [
            name for name in self.channels if self._has_room(state, name, now_s) and self._is_ripe(state, name, now_s)
        ]
        for name in sorted(ripe, key=lambda name: _turn(state.outboxes[name])):
            if not self._has_room(state, name, now_s):  # those before it have used up the total
                continue
            listable, resolvable = self._sayable(state.outboxes[name], now_s)
            state = self._send(state, name, listable, resolvable, now_s)
            notices[name] = _under_way(state, name)
        return state, notices

    def farewell(self, state: PolicyState, name: str, now_s: float) -> tuple[PolicyState, Notice | None]:
        """The last message to a channel that has none under way; None where there is nothing to say.

        Without room in the limits it is sent for critical findings only. It counts all that it does not list.
        """
        listable, resolvable = self._sayable(state.outboxes[name], now_s)
        if not self._has_room(state, name, now_s):
            listable, resolvable = _critical(listable), {}
        if not (listable or resolvable):
            return state, None
        outbox = state.outboxes[name]
        listed = sorted(listable, key=lambda key: not _is_critical(listable[key]))[: self.most_findings]
        counted = outboxes.count(outbox, set(outbox.alarms) - set(listed))
        state = state._replace(outboxes={**state.outboxes, name: counted})
        state = self._send(state, name, listed, resolvable, now_s)
        return state, _under_way(state, name)

    def delivered(self, state: PolicyState, name: str) -> PolicyState:
        """After the message to a channel has arrived."""
        return state._replace(outboxes={**state.outboxes, name: outboxes.delivered(state.outboxes[name])})

    def refused(self, state: PolicyState, name: str, now_s: float) -> PolicyState:
        """After a channel has refused its message: all of it comes with the next one.

        Where no finding gives rise to one, that is as late as the limit's `refill_s`: a channel with a wrong address
        shall not use up the total limit.
        """
        outbox = outboxes.returned(state.outboxes[name], now_s + self.limit.refill_s)
        return state._replace(outboxes={**state.outboxes, name: outbox})

    def due_s(self, state: PolicyState, now_s: float) -> float | None:
        """When `decide` should be asked next; None where nothing waits that time alone would send."""
        times = []
        for name in self.channels:
            ripe_s = self._ripe_s(state.outboxes[name], now_s)
            if ripe_s is not None:
                room_s = max(self.limit.ready_s(state.buckets[name]), self.total_limit.ready_s(state.total))
                times.append(max(ripe_s, room_s))
        return min(times, default=None)

    def num_untold(self, state: PolicyState) -> dict[str, int]:
        """How many findings each channel has been told neither by name nor by number; without those told all."""
        numbers = {name: outboxes.num_untold(outbox) for name, outbox in state.outboxes.items()}
        return {name: number for name, number in numbers.items() if number}

    def _send(
        self, state: PolicyState, name: str, listable: Collection[Key], resolvable: Collection[Key], now_s: float
    ) -> PolicyState:
        outbox = outboxes.compose(state.outboxes[name], listable, resolvable, self.most_findings, now_s)
        return PolicyState(
            self.total_limit.spend(state.total, now_s),
            {**state.buckets, name: self.limit.spend(state.buckets[name], now_s)},
            {**state.outboxes, name: outbox},
        )

    def _has_room(self, state: PolicyState, name: str, now_s: float) -> bool:
        return self.limit.allows(state.buckets[name], now_s) and self.total_limit.allows(state.total, now_s)

    def _is_ripe(self, state: PolicyState, name: str, now_s: float) -> bool:
        ripe_s = self._ripe_s(state.outboxes[name], now_s)
        return ripe_s is not None and ripe_s <= now_s

    def _ripe_s(self, outbox: Outbox, now_s: float) -> float | None:
        """From when on, limits aside, the channel can be told something; None where there is nothing to wait for."""
        if outbox.under_way is not None or not (outbox.alarms or outbox.resolves):
            return None
        listable, resolvable = self._sayable(outbox, now_s)
        if listable or resolvable:
            return min(waits.since_s for waits in (*listable.values(), *resolvable.values())) + self.group_s
        assert self.quiet_hours is not None
        return self.quiet_hours.end_s(now_s)

    def _sayable(self, outbox: Outbox, now_s: float) -> tuple[Mapping[Key, Waiting], Mapping[Key, Waiting]]:
        """The alarms and the resolves that may be told at this time of the day."""
        if self.quiet_hours is None or not self.quiet_hours.holds(now_s):
            return outbox.alarms, outbox.resolves
        return _critical(outbox.alarms) if self.quiet_hours.critical_breaks_through else {}, {}


def _turn(outbox: Outbox) -> tuple[bool, float]:
    """Who goes first where the total limit is short: who has something critical, then who has waited longest."""
    return not any(map(_is_critical, outbox.alarms.values())), outbox.last_s


def _critical(alarms: Mapping[Key, Waiting]) -> Mapping[Key, Waiting]:
    return {key: waits for key, waits in alarms.items() if _is_critical(waits)}


def _is_critical(waits: Waiting) -> bool:
    return waits.finding.severity is Severity.CRITICAL


def _under_way(state: PolicyState, name: str) -> Notice:
    notice = state.outboxes[name].under_way
    assert notice is not None
    return notice
