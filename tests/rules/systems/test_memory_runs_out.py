import numpy as np
import pytest
from tests.rules.traces import alarms, judge, rows, worst

from sonde.core.findings import Severity
from sonde.rules.systems.memory_runs_out import MemoryRunsOut

GB = 1e9


def table(num: int, *, every: int = 10, **series: object) -> list[dict[str, float]]:
    """A row a step, with readings every few steps."""
    found = rows(num * every, loss=1.0)
    for place, row in enumerate(rows(num, **series)):
        found[1 + place * every].update(row)
    return found


def _gpu(grows: float, *, base: float = 20 * GB, seed: int = 0) -> list[dict[str, float]]:
    """A GPU of 80 GB with transient 30 GB on top of what stays, which grows by so much a reading."""
    noise = 0.02 * GB * np.random.default_rng(seed).normal(size=60)
    kept = base + grows * np.arange(60) + noise
    peak = np.maximum.accumulate(kept + 30 * GB)
    return table(60, memory__allocated=list(kept), memory__peak=list(peak), memory__total=80 * GB)


def test_growth_that_will_fill_the_gpu_is_dated_by_its_slope_and_the_room_above_the_peak() -> None:
    seen = alarms(judge(MemoryRunsOut(), _gpu(0.48 * GB)))
    step, first = seen[0]
    left = (80 - 50) / 0.048 - step  # steps until 30 GB have been taken at 48 MB a step
    assert first.severity is Severity.WARNING
    told = float(first.message.split("about ")[1].split(" steps")[0].replace(",", ""))
    assert told == pytest.approx(left, rel=0.15)
    assert worst(seen) is Severity.CRITICAL
    assert "each step takes 45.8 MiB more" in seen[-1][1].message


def test_growth_that_is_far_from_the_limit_is_left_to_the_rule_on_leaks() -> None:
    assert judge(MemoryRunsOut(), _gpu(0.05 * GB)) == []


@pytest.mark.parametrize("seed", range(5))
def test_a_level_memory_near_its_limit_a_warm_up_and_a_full_buffer_are_silent(seed: int) -> None:
    assert judge(MemoryRunsOut(), _gpu(0.0, base=48 * GB, seed=seed)) == []
    steps, noise = np.arange(60), 0.02 * GB * np.random.default_rng(seed).normal(size=60)
    for growth in (28 * GB * (1 - np.exp(-steps / 4)), np.minimum(1.5 * GB * steps, 15 * GB)):
        kept = 20 * GB + growth + noise
        run = table(60, memory__allocated=list(kept), memory__peak=list(kept + 30 * GB), memory__total=80 * GB)
        assert judge(MemoryRunsOut(), run) == []


def test_a_host_whose_process_takes_what_is_left_is_found() -> None:
    taken = 0.32 * GB * np.arange(60)
    run = table(60, host__rss=list(2 * GB + taken), host__available=list(20 * GB - taken))
    seen = alarms(judge(MemoryRunsOut(), run))
    assert seen[0][1].message.startswith("memory on the host will be used up in about")
    assert 300 < seen[0][0] < 400  # when half of it is gone, after the first quarter of the readings
    assert worst(seen) is Severity.CRITICAL


def test_files_mapped_into_memory_and_other_processes_are_no_forecast() -> None:
    taken, level = 0.3 * GB * np.arange(60), np.random.default_rng(0).normal(20 * GB, 0.01 * GB, 60)
    mapped = table(60, host__rss=list(2 * GB + taken), host__available=list(level))
    others = table(60, host__rss=2 * GB, host__available=list(20 * GB - taken))
    assert judge(MemoryRunsOut(), mapped) == []
    assert judge(MemoryRunsOut(), others) == []


def test_few_readings_and_missing_ones_say_nothing() -> None:
    assert judge(MemoryRunsOut(), _gpu(0.45 * GB)[:60]) == []
    assert judge(MemoryRunsOut(), table(60, memory__allocated=list(1 * GB * np.arange(1, 61)))) == []
    assert judge(MemoryRunsOut(), rows(300, loss=1.0)) == []
