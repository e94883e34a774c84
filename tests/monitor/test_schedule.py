"""When something has its turn, asked ahead."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.core.cadences import Every
from sonde.probes.cadences import Cadences
from sonde.probes.schedule import Schedule


@given(stretches=st.lists(st.floats(1, 20), min_size=2, max_size=40), num_slots=st.integers(1, 30))
def test_every_slot_has_its_turns_in_order_however_the_stretch_changes(stretches: list[float], num_slots: int) -> None:
    schedule, clock, pace = Schedule(Cadences(blocks=Every(10, 1))), 0.0, 1.0
    turns: list[int] = []
    for factor in stretches:
        schedule.stretch = factor
        for _ in range(5):
            turns += schedule.slots("blocks", num_slots)
            schedule.advance()
            clock, pace = clock + pace, 1 / factor
    assert turns == [turn % num_slots for turn in range(turns[0], turns[0] + len(turns))] if turns else clock < 12
    assert len(turns) == pytest.approx(clock * num_slots / 10, abs=1.001)


def test_no_family_is_stretched_beyond_its_longest_interval() -> None:
    cadences = Cadences(inputs=Every(1), process=Every(1), resources=Every(1), layers=Every(10), blocks=Every(1000))
    schedule = Schedule(cadences)
    schedule.stretch = 80.0
    due = dict.fromkeys(("inputs", "process", "resources", "layers", "blocks"), 0)
    for _ in range(4000):
        schedule.advance()
        for family in due:
            due[family] += len(schedule.slots(family, 1))
    assert due == {"inputs": 200, "process": 80, "resources": 50, "layers": 200, "blocks": 4}


def test_a_beat_that_was_seen_ahead_comes() -> None:
    schedule = Schedule(Cadences(cosines=Every(7)))
    schedule.stretch = 3.7
    seen = 0
    for _ in range(500):
        expected = [schedule.due("cosines", ahead) for ahead in (1, 2)]
        for was_expected in expected:
            schedule.advance()
            assert schedule.due("cosines") == was_expected
            seen += was_expected
    assert seen == pytest.approx(1000 / 3.7 / 7, abs=1)


def test_what_has_no_slots_has_no_turn() -> None:
    schedule = Schedule(Cadences(blocks=Every(1)))
    for _ in range(3):
        assert not schedule.slots("blocks", 0)
        schedule.advance()


def test_blocks_have_their_turns_sooner_in_the_first_steps_and_no_rarer_than_asked() -> None:
    def turns(cadences: Cadences, family: str = "blocks", num_slots: int = 1) -> list[int]:
        schedule, found = Schedule(cadences), []
        while schedule.iteration < 250:
            if 0 in schedule.slots(family, num_slots):
                found.append(schedule.iteration)
            schedule.advance()
        return found

    assert turns(Cadences(early_steps=100)) == [1, 26, 51, 76, 101, 201]
    assert turns(Cadences(early_steps=100, blocks=Every(200, offset=30))) == [5, 30, 55, 80, 230]
    assert turns(Cadences(early_steps=100, blocks=Every(20))) == list(range(0, 250, 20))
    assert turns(Cadences(early_steps=100), "histograms") == [0, 100, 200]
    assert turns(Cadences(early_steps=100), num_slots=1000) == [1, 101, 201], "so many would make the first steps slow"


def test_a_sweep_has_everything_once_whatever_the_stretch_and_then_ends() -> None:
    schedule = Schedule(Cadences(blocks=Every(100, offset=1), layers=Every(3)))
    schedule.stretch = 50.0
    schedule.resume(1000)
    schedule.sweep(20)
    slots, layers = [], []
    while schedule.iteration < 1199:
        schedule.advance()
        slots += [(schedule.iteration, slot) for slot in schedule.slots("blocks", 7)]
        layers += [schedule.iteration] * schedule.due("layers")
    assert [slot for iteration, slot in slots if iteration <= 1020] == list(range(7))
    assert len([slot for iteration, slot in slots if iteration > 1020]) < 4, "one block in 500 / 7 steps"
    assert [iteration for iteration in layers if iteration <= 1020] == [1002, 1005, 1008, 1011, 1014, 1017, 1020]


@given(
    changes=st.lists(
        st.tuples(
            st.sampled_from(["nothing", "stretch", "burst", "sweep", "resume"]), st.integers(1, 40), st.booleans()
        ),
        min_size=1,
        max_size=150,
    ),
    interval=st.integers(1, 30),
)
def test_what_has_its_turn_does_not_depend_on_how_often_that_is_asked(
    changes: list[tuple[str, int, bool]], interval: int
) -> None:
    cadences = Cadences(cosines=Every(interval), rotating=Every(interval), inputs=Every(1), early_steps=20)
    often, seldom = Schedule(cadences), Schedule(cadences)

    def asked(schedule: Schedule) -> list[object]:
        dues = [schedule.due(family, ahead) for family in ("cosines", "inputs") for ahead in range(3)]
        return [*dues, *(list(schedule.slots("rotating", num_slots)) for num_slots in (1, 7))]

    for change, number, is_asked in changes:
        for schedule in (often, seldom):
            if change == "stretch":
                schedule.stretch = float(number)
            elif change == "burst":
                schedule.burst(number % 4 + 1)
            elif change == "sweep":
                schedule.sweep(number)
            elif change == "resume":
                schedule.resume(number)
            schedule.advance()
        found = asked(often)
        assert found == asked(often)
        if is_asked:
            assert asked(seldom) == found
