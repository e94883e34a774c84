"""Quiet hours, against a clock that is read minute by minute."""

import datetime
import zoneinfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.alerts.quiet_hours import QuietHours

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")


def seconds(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("span", "time", "quiet"),
    [
        ("22:00-07:00", "2023-11-15T22:00:00+01:00", True),
        ("22:00-07:00", "2023-11-16T06:59:59+01:00", True),
        ("22:00-07:00", "2023-11-16T07:00:00+01:00", False),
        ("12:30-13:15", "2023-07-16T12:30:00+02:00", True),
        ("12:30-13:15", "2023-07-16T12:29:59+02:00", False),
        ("12:30-13:15", "2023-07-16T13:15:00+02:00", False),
    ],
)
def test_they_hold_from_their_start_to_before_their_end(span: str, time: str, quiet: bool) -> None:
    assert QuietHours.parse(span, zone="Europe/Berlin").holds(seconds(time)) is quiet


def test_a_night_with_a_change_of_the_clock_ends_at_the_same_local_time() -> None:
    night = QuietHours.parse("22:00-07:00", zone="Europe/Berlin")
    assert night.end_s(seconds("2023-10-28T23:00:00+02:00")) == seconds("2023-10-29T07:00:00+01:00")
    assert night.end_s(seconds("2023-03-25T23:00:00+01:00")) == seconds("2023-03-26T07:00:00+02:00")


@given(
    st.times(),
    st.times(),
    st.integers(0, 365 * 24 * 60),
    st.sampled_from(["UTC", "Asia/Kolkata", "America/New_York", "Australia/Lord_Howe"]),
)
def test_asked_again_at_their_end_they_are_over_within_three_answers(
    start: datetime.time, end: datetime.time, minute: int, zone: str
) -> None:
    start, end = start.replace(second=0, microsecond=0), end.replace(second=0, microsecond=0)
    if start == end:
        return
    hours = QuietHours(start=start, end=end, zone=zone)
    now_s = seconds("2023-01-01T00:00:00+00:00") + 60 * minute
    if not hours.holds(now_s):
        return
    asked_s = now_s
    for _ in range(3):
        if hours.holds(asked_s):
            assert hours.end_s(asked_s) > asked_s
            asked_s = hours.end_s(asked_s)
    assert not hours.holds(asked_s)
    minutes = (now_s + 60 * number for number in range(2 * 24 * 60))
    first_s = next(time_s for time_s in minutes if not hours.holds(time_s))
    assert first_s <= asked_s <= first_s + 3600
