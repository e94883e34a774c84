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
def test_no_slot_has_its_turn_before_the_next_turn(
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
    assert schedule.iteration - 1 <= expected <= schedule.iteration


@given(stretches=st.lists(st.floats(1, 20), min_size=2, max_size=40), num_slots=st.integers(1, 30))
def test_every_slot_has_its_turns_in_order_however_the_stretch_changes(stretches: list[float], num_slots: int) -> None:
    schedule, clock, pace = Schedule(Cadences(blocks=Every(10, 1))), 0.0, 1.0
    turns: list[int] = []
    for factor in stretches:
        schedule.stretch = factor
        for _ in range(5):
            turns += schedule.slots("blocks", num_slots)
            schedule.iteration += 1
            clock, pace = clock + pace, 1 / factor
    assert turns == [turn % num_slots for turn in range(turns[0], turns[0] + len(turns))] if turns else clock < 12
    assert len(turns) == pytest.approx(clock * num_slots / 10, abs=1.001)


@pytest.mark.parametrize(("stretch", "share"), [(9.0, 1.0), (40.0, 0.25)])
def test_inputs_are_stretched_last(stretch: float, share: float) -> None:
    schedule = Schedule(Cadences(inputs=Every(1), process=Every(1)))
    schedule.stretch = stretch
    due: dict[str, int] = {"inputs": 0, "process": 0}
    for _ in range(400):
        schedule.iteration += 1
        for family in due:
            due[family] += len(schedule.slots(family, 1))
    assert due["inputs"] == pytest.approx(400 * share, abs=1)
    assert due["process"] == pytest.approx(400 / stretch, abs=1)


def test_a_beat_that_was_seen_ahead_comes() -> None:
    schedule = Schedule(Cadences(cosines=Every(7)))
    schedule.stretch = 3.7
    seen = 0
    for _ in range(500):
        expected = [schedule.due("cosines", ahead) for ahead in (1, 2)]
        for was_expected in expected:
            schedule.iteration += 1
            assert schedule.due("cosines") == was_expected
            seen += was_expected
    assert seen == pytest.approx(1000 / 3.7 / 7, abs=1)


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


@given(
    changes=st.lists(st.tuples(st.integers(1, 16), st.floats(1, 20), st.booleans()), min_size=2, max_size=40),
    num_slots=st.integers(1, 30),
)
def test_no_turn_is_passed_over_while_iterations_rest(changes: list[tuple[int, float, bool]], num_slots: int) -> None:
    schedule = Schedule(Cadences(blocks=Every(10, 1), cosines=Every(1000, 999)))
    turns: list[int] = []
    for norm_steps, stretch, is_swept in changes:
        schedule.norm_steps, schedule.stretch = norm_steps, stretch
        if is_swept:
            schedule.sweep(2)
        for _ in range(7):
            found = schedule.slots("blocks", num_slots)
            assert not (schedule.rests and (found or schedule.norms_due() or schedule.due("inputs")))
            turns += found
            schedule.iteration += 1
    schedule.wake()
    turns += schedule.slots("blocks", num_slots)
    if turns and not any(is_swept for *_, is_swept in changes):  # it has another interval
        assert turns == [turn % num_slots for turn in range(turns[0], turns[0] + len(turns))]


def test_iterations_without_norms_rest_but_for_cosines_bursts_and_sweeps() -> None:
    def looked_at(schedule: Schedule) -> list[int]:
        found = []
        for schedule.iteration in range(1, 41):
            if not schedule.rests:
                found.append(schedule.iteration)
        return found

    schedule = Schedule(Cadences(cosines=Every(100, 21)))
    assert looked_at(schedule) == list(range(1, 41))
    schedule.norm_steps = 8
    assert looked_at(schedule) == [8, 16, 19, 20, 21, 24, 32, 40]
    schedule.resume(10)
    schedule.burst(2)
    assert looked_at(schedule) == [8, 9, 10, 11, 12, 16, 19, 20, 21, 24, 32, 40], "cosines need the two before"
    schedule.resume(26)
    schedule.sweep(3)
    assert set(looked_at(schedule)) >= {27, 28, 29}


@given(
    norm_steps=st.integers(2, 16),
    stretches=st.lists(st.floats(1, 20), min_size=1, max_size=8),
    cosines=st.builds(Every, st.integers(4, 60), st.integers(0, 3)),
)
def test_which_iterations_rest_does_not_depend_on_what_was_known_before(
    norm_steps: int, stretches: list[float], cosines: Every
) -> None:
    cadences = Cadences(cosines=cosines, early_steps=20)
    usual, afresh = Schedule(cadences), Schedule(cadences)
    usual.norm_steps = norm_steps
    for stretch in stretches:
        usual.stretch = afresh.stretch = stretch
        for _ in range(30):
            afresh.norm_steps = norm_steps  # nothing that was found out holds any longer
            assert usual.rests == afresh.rests
            assert list(usual.slots("blocks", 7)) == list(afresh.slots("blocks", 7))
            for schedule in (usual, afresh):
                schedule.iteration += 1


def test_what_is_looked_at_all_the_same_has_its_turns() -> None:
    schedule = Schedule(Cadences(cosines=Every(100, 99), blocks=Every(4, 1)))
    schedule.norm_steps = 8
    for schedule.iteration in range(1, 4):
        assert schedule.rests
        assert not schedule.slots("blocks", 4)
    schedule.wake()
    assert list(schedule.slots("blocks", 4)) == [0, 1, 2], "those of the iterations that rested"


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
            schedule.iteration += 1
        found = asked(often)
        assert found == asked(often)
        if is_asked:
            assert asked(seldom) == found
