"""The promises of the policy, on made-up courses of findings."""

import datetime
import itertools
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.alerts.made_up import NOON_S, finding

from sonde.alerts.choices import Choice
from sonde.alerts.limits import Limit
from sonde.alerts.notices import Notice
from sonde.alerts.outbox import key
from sonde.alerts.policy import Policy, PolicyState
from sonde.alerts.quiet_hours import QuietHours
from sonde.core.findings import Finding, Severity

UNLIMITED = Limit(burst=10**6, refill_s=1)
CRITICAL = Severity.CRITICAL


def told(policy: Policy, state: PolicyState, now_s: float) -> tuple[PolicyState, dict[str, Notice]]:
    """What is decided, and arrives at once."""
    state, notices = policy.decide(state, now_s)
    for name in notices:
        state = policy.delivered(state, name)
    return state, notices


def one_channel(**settings: Any) -> Policy:
    """Without limits, where they are not given."""
    plain = {"channels": {"log": Choice()}, "group_s": 0.0, "limit": UNLIMITED, "total_limit": UNLIMITED}
    return Policy(**{**plain, **settings})


def test_findings_of_one_moment_become_one_message_with_the_worst_first() -> None:
    policy = one_channel(group_s=5.0)
    state = policy.take(policy.init(NOON_S), [finding("AAA001")], NOON_S)
    state = policy.take(state, [finding("BBB001", severity=CRITICAL), finding("CCC001", is_open=False)], NOON_S + 3)
    assert policy.decide(state, NOON_S + 4.9)[1] == {}
    assert policy.due_s(state, NOON_S + 3) == NOON_S + 5
    _, notices = told(policy, state, NOON_S + 5)
    assert [alarm.code for alarm in notices["log"].alarms] == ["BBB001", "AAA001", "CCC001"]


def test_a_finding_is_told_again_only_when_it_is_worse() -> None:
    policy = one_channel()
    state, first = told(policy, policy.take(policy.init(NOON_S), [finding()], NOON_S), NOON_S)
    state, again = told(policy, policy.take(state, [finding(last=20)], NOON_S + 60), NOON_S + 60)
    worse = finding(last=30, severity=CRITICAL)
    _, third = told(policy, policy.take(state, [worse], NOON_S + 120), NOON_S + 120)
    assert [bool(first), bool(again), bool(third)] == [True, False, True]
    assert third["log"].alarms == (worse,)


def test_what_is_held_back_is_counted_in_the_next_message() -> None:
    policy = one_channel(limit=Limit(burst=1, refill_s=600), most_findings=2)
    state, _ = told(policy, policy.take(policy.init(NOON_S), [finding("AAA000")], NOON_S), NOON_S)
    for number in range(1, 40):
        state, held = told(policy, policy.take(state, [finding(f"AAA{number:03}")], NOON_S + number), NOON_S + number)
        assert held == {}
    assert policy.due_s(state, NOON_S + 40) == NOON_S + 600
    _, notices = told(policy, state, NOON_S + 600)
    assert (len(notices["log"].alarms), notices["log"].more) == (2, 37)


def test_critical_findings_without_room_follow_by_name() -> None:
    policy = one_channel(most_findings=2)
    findings = [finding(f"AAA{number:03}", severity=CRITICAL) for number in range(5)]
    state = policy.take(policy.init(NOON_S), findings, NOON_S)
    sizes = []
    for _ in range(3):
        state, notices = told(policy, state, NOON_S)
        sizes.append((len(notices["log"].alarms), notices["log"].to_follow, notices["log"].more))
    assert sizes == [(2, 3, 0), (2, 1, 0), (1, 0, 0)]


def test_lost_findings_are_counted() -> None:
    policy = one_channel()
    state = policy.take(policy.init(NOON_S), [finding()], NOON_S, num_lost=7)
    assert told(policy, state, NOON_S)[1]["log"].more == 7


def test_channels_choose_for_themselves() -> None:
    policy = one_channel(
        channels={"all": Choice(), "few": Choice(severity=CRITICAL), "spikes": Choice(codes=("LOS*",))}
    )
    findings = [finding("GRD001"), finding("LOS002"), finding("GRD003", severity=CRITICAL)]
    _, notices = told(policy, policy.take(policy.init(NOON_S), findings, NOON_S), NOON_S)
    codes = {name: sorted(alarm.code for alarm in notice.alarms) for name, notice in notices.items()}
    assert codes == {"all": ["GRD001", "GRD003", "LOS002"], "few": ["GRD003"], "spikes": ["LOS002"]}


def test_quiet_hours_hold_warnings_until_the_morning_and_let_critical_ones_through() -> None:
    night = QuietHours.parse("22:00-07:00", zone="Europe/Berlin")
    policy = one_channel(quiet_hours=night)
    midnight_s = NOON_S + 11 * 3600  # UTC; in Berlin it is one hour later
    state = policy.take(policy.init(NOON_S), [finding("AAA001")], midnight_s)
    assert policy.decide(state, midnight_s)[1] == {}
    assert policy.due_s(state, midnight_s) == midnight_s + 7 * 3600
    state, woken = told(
        policy, policy.take(state, [finding("BBB001", severity=CRITICAL)], midnight_s + 60), midnight_s + 60
    )
    assert [alarm.code for alarm in woken["log"].alarms] == ["BBB001"]
    _, morning = told(policy, state, midnight_s + 7 * 3600)
    assert [alarm.code for alarm in morning["log"].alarms] == ["AAA001"]


def test_critical_findings_sleep_too_where_they_are_told_to() -> None:
    night = QuietHours.parse("22:00-07:00", critical_breaks_through=False)
    policy = one_channel(quiet_hours=night)
    state = policy.take(policy.init(NOON_S), [finding(severity=CRITICAL)], NOON_S + 12 * 3600)
    assert policy.decide(state, NOON_S + 12 * 3600)[1] == {}
    assert policy.decide(state, NOON_S + 19 * 3600)[1]["log"].alarms


def test_that_it_is_over_is_told_after_the_alarm_and_once() -> None:
    policy = one_channel()
    state, _ = told(policy, policy.take(policy.init(NOON_S), [finding()], NOON_S), NOON_S)
    over = finding(last=90, is_open=False)
    state, notices = told(policy, policy.take(state, [over], NOON_S + 1), NOON_S + 1)
    assert notices["log"] == Notice(resolved=(over,))
    assert told(policy, policy.take(state, [over], NOON_S + 2), NOON_S + 2)[1] == {}


def test_that_it_is_over_is_not_said_again_while_it_is_being_said() -> None:
    policy = one_channel()
    over = finding(last=90, is_open=False)
    state, _ = told(policy, policy.take(policy.init(NOON_S), [finding()], NOON_S), NOON_S)
    state, _ = policy.decide(policy.take(state, [over], NOON_S), NOON_S)
    state = policy.delivered(policy.take(state, [over], NOON_S), "log")
    assert policy.due_s(state, NOON_S) is None


def test_nothing_is_said_to_be_over_where_that_is_not_wanted() -> None:
    policy = one_channel(resolve=False)
    state, _ = told(policy, policy.take(policy.init(NOON_S), [finding()], NOON_S), NOON_S)
    assert told(policy, policy.take(state, [finding(last=90, is_open=False)], NOON_S), NOON_S)[1] == {}


def test_a_finding_that_closes_while_its_alarm_is_under_way_is_over_once_that_has_arrived() -> None:
    policy = one_channel()
    state, _ = policy.decide(policy.take(policy.init(NOON_S), [finding()], NOON_S), NOON_S)
    state = policy.take(state, [finding(last=90, is_open=False)], NOON_S)
    assert policy.decide(state, NOON_S)[1] == {}
    arrived, _ = told(policy, policy.delivered(state, "log"), NOON_S)
    assert arrived.outboxes["log"].told[key(finding())].resolved
    _, notices = told(policy, policy.refused(state, "log", NOON_S), NOON_S + UNLIMITED.refill_s)
    assert notices["log"] == Notice(alarms=(finding(last=90, is_open=False),))


def test_a_finding_whose_alarm_says_that_it_is_over_is_not_told_to_be_over() -> None:
    policy = one_channel()
    over = finding(last=90, is_open=False)
    state, _ = policy.decide(policy.take(policy.init(NOON_S), [over], NOON_S), NOON_S)
    state = policy.delivered(policy.take(state, [over], NOON_S), "log")
    assert policy.due_s(policy.take(state, [over], NOON_S), NOON_S) is None


def test_of_more_than_a_few_hundred_that_wait_only_the_number_is_kept() -> None:
    policy = one_channel(quiet_hours=QuietHours.parse("00:00-23:59"))
    findings = [finding(first=number) for number in range(1_500)]
    urgent = [finding("BBB001", first=number, severity=CRITICAL) for number in range(1_200)]
    state = policy.take(policy.init(NOON_S), findings + urgent, NOON_S)
    assert len(state.outboxes["log"].alarms) == 250 + 1_200
    for number in range(2_000, 4_000):
        state = policy.take(state, [finding(first=number)], NOON_S)
        assert len(state.outboxes["log"].alarms) == 250 + 1_200
    worse = [finding(first=number, severity=CRITICAL) for number in (0, 3_999)]  # one that waits, one that was counted
    state = policy.take(state, [*worse, finding(first=4_000)], NOON_S)
    assert len(state.outboxes["log"].alarms) == 250 + 1_202
    assert policy.num_untold(state) == {"log": 4_702}


def test_the_channel_that_waited_longest_goes_first_where_the_total_is_short() -> None:
    policy = one_channel(channels={"a": Choice(), "b": Choice()}, total_limit=Limit(burst=1, refill_s=60))
    state = policy.init(NOON_S)
    turns: list[str] = []
    for number in range(4):
        now_s = NOON_S + 60 * number
        state, notices = told(policy, policy.take(state, [finding(f"AAA{number:03}")], now_s), now_s)
        turns.extend(notices)
    assert turns == ["a", "b", "a", "b"]


def test_the_last_message_is_sent_outside_of_the_limits_for_critical_findings_only() -> None:
    policy = one_channel(limit=Limit(burst=1, refill_s=600), most_findings=1)
    state, _ = told(policy, policy.take(policy.init(NOON_S), [finding("AAA000")], NOON_S), NOON_S)
    held = policy.take(state, [finding("AAA001"), finding("AAA002")], NOON_S + 1)
    assert policy.farewell(held, "log", NOON_S + 1)[1] is None
    assert policy.num_untold(held) == {"log": 2}
    critical = [finding("BBB001", severity=CRITICAL), finding("BBB002", severity=CRITICAL)]
    state, notice = policy.farewell(policy.take(held, critical, NOON_S + 1), "log", NOON_S + 1)
    assert notice is not None
    assert [alarm.code for alarm in notice.alarms] == ["BBB001"]
    assert (notice.more, notice.to_follow) == (3, 0)
    assert policy.num_untold(policy.delivered(state, "log")) == {}


class Course(NamedTuple):
    """A made-up policy, what happens to it, and how sending goes."""

    policy: Policy
    events: list[tuple[float, Finding]]
    fates: list[bool | None]
    """Of messages in turn: arrives, is refused, or (None) stays under way until after the next finding is taken."""


@st.composite
def courses(draw: st.DrawFn) -> Course:
    limits = st.builds(Limit, burst=st.integers(1, 3), refill_s=st.sampled_from([1.0, 30.0, 600.0]))
    hours = st.integers(0, 23)
    quiet = st.builds(
        lambda start, length, zone, through: QuietHours(
            start=datetime.time(start),
            end=datetime.time((start + length) % 24),
            zone=zone,
            critical_breaks_through=through,
        ),
        hours,
        st.integers(1, 23),
        st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe"]),
        st.booleans(),
    )
    policy = Policy(
        channels={"a": Choice(), "b": Choice(severity=draw(st.sampled_from(Severity)))},
        group_s=draw(st.sampled_from([0.0, 5.0])),
        limit=draw(limits),
        total_limit=draw(limits),
        quiet_hours=draw(st.none() | quiet),
        most_findings=draw(st.integers(1, 3)),
    )
    severities = list(Severity)
    lives: dict[str, Finding] = {}
    events = []
    now_s = NOON_S
    for step in range(draw(st.integers(1, 40))):
        now_s += draw(st.sampled_from([0.0, 0.5, 7.0, 90.0, 4000.0]))
        code = f"AAA{draw(st.integers(0, 9)):03}"
        old = lives.get(code)
        if old is not None and draw(st.booleans()):
            new = old  # said again
        elif old is None or not old.open:
            new = finding(code, severity=draw(st.sampled_from(severities)), first=step)
        else:
            worse = severities[severities.index(old.severity) :]
            new = finding(
                code,
                severity=draw(st.sampled_from(worse)),
                first=old.first_step,
                last=step,
                is_open=draw(st.booleans()),
            )
        lives[code] = new
        events.append((now_s, new))
    return Course(policy, events, draw(st.lists(st.sampled_from([True, False, None]), max_size=30)))


class Sent(NamedTuple):
    time_s: float
    channel: str
    notice: Notice
    arrived: bool


def played(course: Course) -> tuple[PolicyState, list[Sent]]:
    """The whole course, and then as long as anything is due; once the fates are used up everything arrives."""
    policy, state = course.policy, course.policy.init(NOON_S)
    sent: list[Sent] = []
    flying: list[str] = []
    fates = itertools.chain(course.fates, itertools.repeat(True))

    def settle(name: str, notice: Notice, time_s: float, arrives: bool | None) -> None:
        nonlocal state
        if arrives is None:
            flying.append(name)
        elif arrives:
            state = policy.delivered(state, name)
        else:
            state = policy.refused(state, name, time_s)
        sent.append(Sent(time_s, name, notice, arrives is not False))

    def decide(now_s: float) -> None:
        nonlocal state
        state, notices = policy.decide(state, now_s)
        for name, notice in notices.items():
            settle(name, notice, now_s, next(fates))

    def advance(now_s: float, until_s: float) -> None:
        while (due_s := policy.due_s(state, now_s)) is not None and due_s <= until_s:
            now_s = max(now_s, due_s)
            decide(now_s)

    last_s = NOON_S
    for time_s, found in course.events:
        advance(last_s, time_s)
        arriving = flying.copy()
        flying.clear()
        state = policy.take(state, [found], time_s)
        for name in arriving:
            state = policy.delivered(state, name)
        decide(time_s)  # asked when nothing is due, it must hold back by itself
        last_s = time_s
    while True:
        advance(last_s, float("inf"))
        if not flying:
            return state, sent
        while flying:
            state = policy.delivered(state, flying.pop())


@settings(max_examples=60)
@given(courses())
def test_there_are_never_more_messages_than_the_limits_allow(course: Course) -> None:
    _, sent = played(course)
    limits = {"a": course.policy.limit, "b": course.policy.limit, "": course.policy.total_limit}
    for channel, limit in limits.items():
        times = [item.time_s for item in sent if channel in ("", item.channel)]
        for (i, start_s), (j, end_s) in itertools.combinations(enumerate(times), 2):
            assert j - i + 1 <= limit.burst + (end_s - start_s) / limit.refill_s + 1e-3


@settings(max_examples=60)
@given(courses())
def test_nothing_critical_is_lost_and_everything_is_told_by_name_or_number(course: Course) -> None:
    state, sent = played(course)
    assert course.policy.num_untold(state) == {}
    for name, choice in course.policy.channels.items():
        arrived = [item.notice for item in sent if item.channel == name and item.arrived]
        named = {(key(alarm), alarm.severity) for notice in arrived for alarm in notice.alarms}
        wanted = [found for _, found in course.events if choice.takes(found)]
        assert {(key(found), CRITICAL) for found in wanted if found.severity is CRITICAL} <= named
        unnamed = {key(found) for found in wanted} - {name for name, _ in named}
        counted = sum(notice.more for notice in arrived)
        assert len(unnamed) <= counted <= len({(key(found), found.severity) for found in wanted} - named)


@settings(max_examples=60)
@given(courses())
def test_each_alarm_is_told_at_most_once_per_severity_and_over_only_after_it(course: Course) -> None:
    _, sent = played(course)
    for name in course.policy.channels:
        alarms: list[tuple[tuple[str, int], Severity]] = []
        over: list[tuple[str, int]] = []
        closed: set[tuple[str, int]] = set()
        for item in sent:
            if item.channel == name and item.arrived:
                assert {key(found) for found in item.notice.resolved} <= {which for which, _ in alarms}
                assert not closed & {key(found) for found in item.notice.resolved}
                alarms.extend((key(found), found.severity) for found in item.notice.alarms)
                closed |= {key(found) for found in item.notice.alarms if not found.open}
                over.extend(key(found) for found in item.notice.resolved)
        assert len(alarms) == len(set(alarms))
        assert len(over) == len(set(over))


@settings(max_examples=60)
@given(courses())
def test_quiet_hours_are_quiet(course: Course) -> None:
    quiet = course.policy.quiet_hours
    _, sent = played(course)
    for item in sent:
        if quiet is not None and quiet.holds(item.time_s):
            assert quiet.critical_breaks_through
            assert item.notice.resolved == ()
            assert {alarm.severity for alarm in item.notice.alarms} == {CRITICAL}
