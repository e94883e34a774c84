import numpy as np
import pytest
from tests.rules.traces import alarms, judge, rows

from sonde.core.findings import Severity
from sonde.rules.systems.data_bound import DataBound


def table(waits: list[float], compute_s: float = 0.005) -> list[dict[str, float]]:
    return rows(len(waits), time__data=waits, time__step=[wait + compute_s for wait in waits])


def test_a_wait_at_every_step_is_found() -> None:
    seen = judge(DataBound(), table([0.02] * 100))
    assert seen[0][0] == 40
    assert seen[0][1].severity is Severity.WARNING
    assert "at every step" in seen[0][1].message


def test_bursts_with_a_period_are_found() -> None:
    seen = judge(DataBound(), table([0.2 if i % 12 == 0 else 1e-5 for i in range(200)]))
    assert alarms(seen)
    assert "12 steps apart" in seen[0][1].message


@pytest.mark.parametrize("seed", range(20))
def test_irregular_waits_of_a_busy_machine_are_information_at_most(seed: int) -> None:
    rng = np.random.default_rng(seed)
    waits = list(np.where(rng.random(300) < 0.4, rng.exponential(0.05, 300), 2e-4))
    assert alarms(judge(DataBound(), table(waits))) == []


def test_tiny_steps_one_slow_batch_and_pauses_between_epochs_are_no_stall() -> None:
    assert judge(DataBound(), table([0.001] * 200, compute_s=0.0005)) == []
    assert judge(DataBound(), table([1.0 if i in (0, 100) else 1e-4 for i in range(200)])) == []
    assert judge(DataBound(), rows(200, time__step=0.1)) == []


def test_three_bursts_are_enough_where_they_are_alike() -> None:
    alike = [0.28 if i % 15 == 0 else 1e-4 for i in range(100)]
    assert alarms(judge(DataBound(), table(alike)))[0][0] == 46
    unlike = [wait * (1 + i / 50) for i, wait in enumerate(alike)]
    assert alarms(judge(DataBound(), table(unlike)))[0][0] > 46


@pytest.mark.parametrize(("work", "severity"), [(0.018, Severity.INFO), (0.002, Severity.WARNING)])
def test_a_thread_that_makes_its_batches_itself_does_not_wait(work: float, severity: Severity) -> None:
    run = [row | {"time/data_work": work} for row in table([0.02] * 100)]
    assert {sighting.severity for _, sighting in judge(DataBound(), run)} == {severity}
