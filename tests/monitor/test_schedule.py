"""When something has its turn, asked ahead."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.core.cadences import Every
from sonde.monitor.cadences import Cadences
from sonde.monitor.schedule import Schedule


@given(
    interval=st.integers(1, 30),
    offset=st.integers(0, 29),
    num_slots=st.integers(1, 60),
    start=st.integers(0, 100),
    stretch=st.floats(1, 3),
    burst=st.integers(0, 5),
)
def test_the_next_turn_is_the_first_iteration_with_a_slot(
    interval: int, offset: int, num_slots: int, start: int, stretch: float, burst: int
) -> None:
    schedule = Schedule(Cadences(blocks=Every(interval, offset % interval)))
    schedule.stretch = stretch
    schedule.resume(start + 3)
    if burst:
        schedule.burst(burst)
    schedule.resume(start)
    expected = schedule.next_turn("blocks", num_slots)
    while not (schedule.iteration > start and schedule.slots("blocks", num_slots)):
        schedule.iteration += 1
    assert schedule.iteration == expected


def test_what_has_no_slots_has_no_turn() -> None:
    assert Schedule(Cadences()).next_turn("blocks", 0) == sys.maxsize


@pytest.mark.parametrize("change", ["stretch", "burst", "resume"])
def test_whatever_moves_turns_changes_the_version(change: str) -> None:
    schedule = Schedule(Cadences())
    before = schedule.version
    if change == "stretch":
        schedule.stretch = 2.0
    elif change == "burst":
        schedule.burst(1)
    else:
        schedule.resume(7)
    assert schedule.version != before
