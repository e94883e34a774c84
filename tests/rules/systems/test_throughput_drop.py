import numpy as np
import pytest
from tests.rules.traces import judge, rows, worst

from sonde.core.findings import Severity
from sonde.rules.systems.throughput_drop import ThroughputDrop


def times(num: int, seconds: float, seed: int = 0) -> list[float]:
    """Steps that other work on the machine delays now and then, some of them a lot."""
    rng = np.random.default_rng(seed)
    return list(seconds * (1 + np.where(rng.random(num) < 0.4, rng.exponential(10, num), 0.02 * rng.random(num))))


@pytest.mark.parametrize(("slower", "severity", "delay"), [(3.0, Severity.WARNING, 72), (10.0, Severity.CRITICAL, 36)])
def test_steps_that_become_slow_and_stay_slow_are_found_and_dated(
    slower: float, severity: Severity, delay: int
) -> None:
    series = times(168, 0.002) + times(200, 0.002 * slower, seed=1)
    seen = judge(ThroughputDrop(), rows(368, time__step=series))
    assert worst(seen) is severity
    assert seen[0][0] == 168 + delay
    assert seen[0][1].since == 169


def test_a_tenth_of_a_second_is_not_enough_however_slow_it_is() -> None:
    series = times(168, 1e-5) + times(200, 1e-4, seed=1)
    assert judge(ThroughputDrop(), rows(368, time__step=series))[0][0] == 168 + 72


@pytest.mark.parametrize("seed", range(6))
def test_a_busy_machine_pauses_and_a_slow_start_are_no_drop(seed: int) -> None:
    series = times(400, 0.002, seed)
    series[0] = 30.0
    series[200] = 60.0
    assert judge(ThroughputDrop(), rows(400, time__step=series)) == []


def test_longer_texts_are_no_drop_where_tokens_are_counted() -> None:
    table = rows(
        400, time__step=[0.01] * 200 + [0.05] * 200, throughput__tokens_per_s=[1e5 + i % 3 for i in range(400)]
    )
    assert judge(ThroughputDrop(), table) == []
    assert judge(ThroughputDrop(), rows(400, loss=1.0)) == []


def test_episodes_that_last_longer_are_no_drop_and_a_drop_among_them_is_found() -> None:
    lengths = [float(10 + i // 2 + i % 7) for i in range(700)]
    healthy = [0.001 * length for length in lengths]
    assert judge(ThroughputDrop(), rows(700, time__step=healthy, batch__samples=lengths)) == []
    slow = [t * (1 if i < 400 else 5) for i, t in enumerate(healthy)]
    seen = judge(ThroughputDrop(), rows(700, time__step=slow, batch__samples=lengths))
    assert seen[0][0] > 400
    assert "samples a second" in seen[0][1].message
    counted = [length if i % 3 == 0 else None for i, length in enumerate(lengths)]
    assert judge(ThroughputDrop(), rows(700, time__step=healthy, batch__samples=counted)) == []
