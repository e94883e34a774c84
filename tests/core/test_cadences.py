import itertools
import json
import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.core.cadences import Adaptive, AdaptiveState, Burst, Every, Rotation, every, stretched

beats = st.integers(1, 500).flatmap(lambda n: st.builds(Every, st.just(n), st.integers(0, n - 1)))


def run(
    adaptive: Adaptive,
    state: AdaptiveState,
    num_steps: int,
    *,
    plain_s: float,
    fixed_s: float = 0.0,
    step_s: float = 0.1,
) -> tuple[AdaptiveState, list[float]]:
    """A training whose stretchable own work costs `plain_s` a step at the plain cadence."""
    stretches = []
    for _ in range(num_steps):
        state, stretch = adaptive.step(state, fixed_s + plain_s / state.stretch, step_s)
        stretches.append(stretch)
    return state, stretches


@given(beats, st.integers(0, 10_000))
def test_a_beat_is_due_exactly_once_an_interval(cadence: Every, start: int) -> None:
    due = [step for step in range(start, start + cadence.interval_steps) if cadence.due(step)]
    assert len(due) == 1
    assert due[0] % cadence.interval_steps == cadence.offset


def test_the_first_beat_comes_at_the_offset() -> None:
    assert [step for step in range(12) if Every(5, 2).due(step)] == [2, 7]


def test_every_n_begins_at_step_zero() -> None:
    assert every(3) == Every(3, 0)
    assert every(3).due(0)


@pytest.mark.parametrize(("interval_steps", "offset"), [(0, 0), (-1, 0), (3, 3), (3, -1)])
def test_a_beat_that_never_comes_is_refused(interval_steps: int, offset: int) -> None:
    with pytest.raises(ValueError, match=r"`Every\("):
        Every(interval_steps, offset)


@given(beats, st.integers(0, 300), st.integers(0, 10_000))
def test_a_rotation_gives_every_slot_once_an_interval_from_any_step(cadence: Every, num_slots: int, start: int) -> None:
    rotation = Rotation(cadence, num_slots)
    turns = Counter(slot for step in range(start, start + cadence.interval_steps) for slot in rotation.due(step))
    assert turns == Counter(range(num_slots))


@given(beats, st.integers(0, 300))
def test_a_rotation_spreads_its_slots_evenly_over_the_steps(cadence: Every, num_slots: int) -> None:
    rotation = Rotation(cadence, num_slots)
    sizes = {len(rotation.due(step)) for step in range(cadence.interval_steps)}
    assert sizes <= {num_slots // cadence.interval_steps, num_slots // cadence.interval_steps + 1}


def test_a_rotation_with_few_slots_keeps_them_apart() -> None:
    rotation = Rotation(every(100), num_slots=4)
    busy = [step for step in range(100) if rotation.due(step)]
    assert [later - earlier for earlier, later in itertools.pairwise(busy)] == [25, 25, 25]


def test_a_rotation_begins_with_its_first_slot_at_the_offset() -> None:
    rotation = Rotation(Every(4, 1), num_slots=4)
    assert [list(rotation.due(step)) for step in range(5)] == [[3], [0], [1], [2], [3]]


def test_a_rotation_of_less_than_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"num_slots=\.\.\.\)` must be at least 0, got -1"):
        Rotation(every(2), -1)


def test_a_burst_is_due_at_its_steps_and_no_others() -> None:
    assert [step for step in range(20) if Burst(7, num_steps=3).due(step)] == [7, 8, 9]
    assert not any(Burst(7, num_steps=0).due(step) for step in range(20))


def test_a_burst_of_less_than_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"num_steps=\.\.\.\)` must be at least 0, got -3"):
        Burst(7, num_steps=-3)


@given(beats, st.floats(1, 1000))
def test_stretching_never_comes_more_often_than_asked_nor_a_step_too_rarely(cadence: Every, factor: float) -> None:
    wanted = cadence.interval_steps * factor
    interval = stretched(cadence, factor).interval_steps
    assert wanted * (1 - 1e-8) <= interval < wanted + 1


def test_stretching_is_not_misled_by_rounding() -> None:
    assert stretched(every(10), 1.1) == every(11)
    assert stretched(Every(8, 3), 1.0) == Every(8, 3)


@pytest.mark.parametrize("factor", [0.99, -1.0, math.nan, math.inf])
def test_stretching_by_less_than_one_is_refused(factor: float) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        stretched(every(3), factor)


def test_a_training_within_its_budget_is_never_stretched() -> None:
    _, stretches = run(Adaptive(budget=0.01), Adaptive().init(), 5000, plain_s=0.00099)
    assert set(stretches) == {1.0}


def test_the_floor_lets_tiny_steps_be_watched_in_full() -> None:
    adaptive = Adaptive(budget=0.01, floor_s=2e-3)
    _, stretches = run(adaptive, adaptive.init(), 1000, plain_s=1.9e-3, step_s=1e-3)
    assert set(stretches) == {1.0}


@given(st.floats(1.3, 60), st.floats(0, 0.4))
def test_own_time_comes_back_into_the_budget_and_the_stretch_then_rests(overload: float, fixed: float) -> None:
    adaptive = Adaptive(budget=0.01, floor_s=1e-6)
    allowed_s = 0.01 * 0.1
    plain_s, fixed_s = allowed_s * overload, allowed_s * fixed
    state, _ = run(adaptive, adaptive.init(), 3000, plain_s=plain_s, fixed_s=fixed_s)
    assert fixed_s + plain_s / state.stretch <= allowed_s
    _, later = run(adaptive, state, 3000, plain_s=plain_s, fixed_s=fixed_s)
    assert set(later) == {state.stretch}


@pytest.mark.parametrize("overload", [1.5, 10.0, 90.0])
def test_an_overload_is_answered_before_it_has_cost_more_than_a_few_steps(overload: float) -> None:
    adaptive = Adaptive(budget=0.01)
    step_s = 0.1
    allowed_s = 0.01 * step_s
    _, stretches = run(adaptive, adaptive.init(), 1000, plain_s=overload * allowed_s, step_s=step_s)
    excess_s = sum(max(overload * allowed_s / stretch - allowed_s, 0.0) for stretch in [1.0, *stretches])
    assert excess_s < 7 * step_s


def test_a_larger_overload_stretches_further() -> None:
    adaptive = Adaptive(budget=0.01)
    ends = [run(adaptive, adaptive.init(), 2000, plain_s=plain_s)[1][-1] for plain_s in (0.002, 0.008, 0.032)]
    assert ends == sorted(ends)
    assert ends[2] > 4 * ends[0]


@given(st.floats(1.3, 60))
def test_no_more_detail_is_given_up_than_the_budget_asks_for(overload: float) -> None:
    adaptive = Adaptive(budget=0.01, floor_s=1e-6)
    state, _ = run(adaptive, adaptive.init(), 1000, plain_s=0.001 * overload)
    assert state.stretch < overload / 0.6


def test_a_slow_start_of_a_few_steps_is_too_little_evidence() -> None:
    adaptive = Adaptive(budget=0.01, floor_s=1e-6)
    state, slow = run(adaptive, adaptive.init(), 10, plain_s=0.002)
    _, later = run(adaptive, state, 500, plain_s=0.0005)
    assert {*slow, *later} == {1.0}


def test_one_slow_step_is_forgiven_and_a_second_is_not() -> None:
    adaptive = Adaptive(budget=0.01)
    state, _ = run(adaptive, adaptive.init(), 200, plain_s=1e-4)
    state, after_one = adaptive.step(state, 5.0, 5.1)
    assert after_one == 1.0
    state, calm = run(adaptive, state, 200, plain_s=1e-4)
    assert set(calm) == {1.0}
    _, after_two = adaptive.step(state, 5.0, 5.1)
    assert after_two > 1.0


def test_the_stretch_is_relaxed_slowly_and_fully_once_the_load_is_gone() -> None:
    adaptive = Adaptive(budget=0.01)
    state, _ = run(adaptive, adaptive.init(), 2000, plain_s=0.008)
    assert state.stretch > 8
    soon, _ = run(adaptive, state, adaptive.relax_after_steps, plain_s=0.0)
    assert soon.stretch == state.stretch
    late, stretches = run(adaptive, state, 20 * adaptive.relax_after_steps, plain_s=0.0)
    assert late.stretch == 1.0
    drops = [i for i, (a, b) in enumerate(itertools.pairwise(stretches)) if b < a]
    assert all(later - earlier == adaptive.relax_after_steps for earlier, later in itertools.pairwise(drops))
    assert all(stretches[i + 1] / stretches[i] > 0.79 for i in drops)


@given(st.lists(st.tuples(st.floats(), st.floats()), max_size=200))
def test_the_stretch_stays_between_one_and_its_limit_whatever_comes(times: list[tuple[float, float]]) -> None:
    adaptive = Adaptive(max_stretch=7.0)
    state = adaptive.init()
    for own_s, step_s in times:
        state, stretch = adaptive.step(state, own_s, step_s)
        assert 1 <= stretch <= 7
        assert stretch == state.stretch


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1.0])
def test_impossible_times_are_ignored(bad: float) -> None:
    adaptive = Adaptive()
    state, _ = run(adaptive, adaptive.init(), 50, plain_s=0.004)
    assert adaptive.step(state, bad, 0.1) == (state, state.stretch)
    assert adaptive.step(state, 0.001, bad) == (state, state.stretch)


def test_the_state_goes_on_after_a_json_round_trip_as_if_nothing_had_happened() -> None:
    adaptive = Adaptive()
    state, _ = run(adaptive, adaptive.init(), 30, plain_s=0.01)
    restored = AdaptiveState(*json.loads(json.dumps(state)))
    assert run(adaptive, restored, 500, plain_s=0.01) == run(adaptive, state, 500, plain_s=0.01)


@pytest.mark.parametrize(
    "wrong",
    [
        {"budget": 0.0},
        {"budget": 1.1},
        {"floor_s": 0.0},
        {"floor_s": math.nan},
        {"decay": 1.0},
        {"decay": -0.1},
        {"relax_below": 0.8},
        {"relax_below": 0.0},
        {"target": 0.5},
        {"target": 1.1},
        {"max_stretch": 0.5},
        {"max_stretch": math.inf},
    ],
)
def test_settings_out_of_range_are_refused_by_name(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=rf"`Adaptive\({next(iter(wrong))}=\.\.\.\)`"):
        Adaptive(**wrong)  # type: ignore[arg-type]


def test_relaxing_without_waiting_is_refused() -> None:
    with pytest.raises(ValueError, match="relax_after_steps"):
        Adaptive(relax_after_steps=0)
