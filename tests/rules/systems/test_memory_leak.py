import numpy as np
import pytest
from tests.rules.traces import alarms, judge, rows

from sonde.rules.systems.memory_leak import MemoryLeak

MB = 1e6


def table(values: list[float], *, every: int = 10, tag: str = "host/rss") -> list[dict[str, float]]:
    found = rows(len(values) * every, loss=1.0)
    for i, value in enumerate(values):
        found[1 + i * every][tag] = value
    return found


@pytest.mark.parametrize("tag", ["host/rss", "memory/allocated"])
def test_memory_that_grows_at_every_step_is_found(tag: str) -> None:
    rng = np.random.default_rng(0)
    values = list(400 * MB + 3 * MB * np.arange(40) + 0.5 * MB * rng.normal(size=40))
    seen = judge(MemoryLeak(), table(values, tag=tag))
    assert alarms(seen)
    assert seen[0][0] <= 250
    assert "KiB a step, and has grown by 30.7 MiB since step 32" in seen[0][1].message


@pytest.mark.parametrize("seed", range(3))
def test_warming_up_filling_a_buffer_and_noise_are_no_leak(seed: int) -> None:
    rng = np.random.default_rng(seed)
    noise = 0.5 * MB * rng.normal(size=60)
    steps = np.arange(60)
    for growth in (200 * MB * (1 - np.exp(-steps / 4)), np.minimum(3 * MB * steps, 30 * MB), 2 * MB * (steps % 7)):
        assert judge(MemoryLeak(), table(list(400 * MB + growth + noise))) == []


def test_few_readings_and_missing_ones_say_nothing() -> None:
    assert judge(MemoryLeak(), table([400 * MB, 500 * MB, 600 * MB], every=100)) == []
    assert judge(MemoryLeak(), rows(300, loss=1.0)) == []
