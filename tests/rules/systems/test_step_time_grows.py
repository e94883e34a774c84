import numpy as np
import pytest
from tests.rules.systems.test_throughput_drop import times
from tests.rules.traces import judge, rows

from sonde.rules.systems.step_time_grows import StepTimeGrows


def test_steps_that_take_longer_with_every_epoch_are_found() -> None:
    series = [t for epoch in range(6) for t in times(64, 0.002 * (1 + 0.4 * epoch), seed=epoch)]
    seen = judge(StepTimeGrows(), rows(384, time__step=series))
    assert seen
    assert seen[0][0] % 24 == 0


@pytest.mark.parametrize("seed", range(6))
def test_steady_steps_on_a_busy_machine_are_left_alone(seed: int) -> None:
    assert judge(StepTimeGrows(), rows(600, time__step=times(600, 0.002, seed))) == []


def test_a_slow_start_and_a_long_run_are_left_alone_and_memory_is_bounded() -> None:
    rule = StepTimeGrows()
    series = np.r_[np.linspace(1.0, 0.1, 50), np.full(1450, 0.1)]
    assert judge(rule, rows(1500, time__step=list(series))) == []


def test_a_machine_that_was_busy_at_first_does_not_make_later_steps_slow() -> None:
    busy = 60
    series = [0.012] * busy + times(300, 0.002, seed=1)
    starved = [0.0114] * busy + list(np.linspace(0.0013, 0.0, 300))
    assert judge(StepTimeGrows(), rows(360, time__step=series, time__starved=starved)) == []


def test_episodes_that_last_longer_are_no_growth_of_what_an_example_takes() -> None:
    lengths = [float(10 + i // 2 + i % 7) for i in range(700)]
    healthy = [0.001 * length for length in lengths]
    assert judge(StepTimeGrows(), rows(700, time__step=healthy, batch__samples=lengths)) == []
    grown = [t * (1 + i / 300) for i, t in enumerate(healthy)]
    assert judge(StepTimeGrows(), rows(700, time__step=grown, batch__samples=lengths))
