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


def test_global_norms_have_their_turn_once_in_so_many_steps_and_in_a_burst() -> None:
    schedule = Schedule(Cadences())
    due: dict[int, list[bool]] = {}
    for schedule.norm_steps in (1, 3):
        due[schedule.norm_steps] = []
        for schedule.iteration in range(6):
            due[schedule.norm_steps].append(schedule.norms_due())
    assert due == {1: [True] * 6, 3: [True, False, False] * 2}
    schedule.resume(0)
    schedule.burst(2)
    schedule.iteration = 1
    assert schedule.norms_due()


def test_blocks_have_their_turns_sooner_in_the_first_steps_and_no_rarer_than_asked() -> None:
    def turns(cadences: Cadences, family: str = "blocks", num_slots: int = 1) -> list[int]:
        schedule, found = Schedule(cadences), []
        for schedule.iteration in range(250):
            if 0 in schedule.slots(family, num_slots):
                found.append(schedule.iteration)
        return found

    assert turns(Cadences(early_steps=100)) == [1, 26, 51, 76, 101, 201]
    assert turns(Cadences(early_steps=100, blocks=Every(200, offset=30))) == [5, 30, 55, 80, 230]
    assert turns(Cadences(early_steps=100, blocks=Every(20))) == list(range(0, 250, 20))
    assert turns(Cadences(early_steps=100), "histograms") == [0, 100, 200]
    assert turns(Cadences(early_steps=100), num_slots=1000) == [1, 101, 201], "so many would make the first steps slow"


def test_the_end_of_the_early_steps_changes_the_version() -> None:
    schedule = Schedule(Cadences(early_steps=100))
    schedule.iteration = 99
    before = schedule.version
    schedule.iteration = 100
    assert schedule.version != before


def test_a_sweep_has_everything_once_whatever_the_stretch_and_then_ends() -> None:
    schedule = Schedule(Cadences(blocks=Every(100, offset=1), layers=Every(3)))
    schedule.stretch = 50.0
    schedule.iteration = 1000
    schedule.sweep(20)
    slots, layers = [], []
    for schedule.iteration in range(1001, 1200):
        slots += [(schedule.iteration, slot) for slot in schedule.slots("blocks", 7)]
        layers += [schedule.iteration] * schedule.due("layers")
    assert sorted(slot for _, slot in slots) == list(range(7))
    assert all(iteration <= 1020 for iteration, _ in slots)
    assert [iteration for iteration in layers if iteration <= 1020] == [1002, 1005, 1008, 1011, 1014, 1017, 1020]
