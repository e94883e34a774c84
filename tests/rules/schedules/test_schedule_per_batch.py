"""SCH005 schedule-per-batch."""

import math

from sonde.core.findings import Severity
from sonde.rules.schedules.schedule_per_batch import SchedulePerBatch

from ..traces import judge, rows, worst


def _rows(rates: list[float], epoch: int) -> list[dict[str, float]]:
    return rows(len(rates), lr=rates, epoch=[None if (i + 1) % epoch else (i + 1) // epoch for i in range(len(rates))])


def test_a_step_schedule_stepped_by_batches_is_a_warning_in_the_first_epoch() -> None:
    seen = judge(SchedulePerBatch(), _rows([0.1 * 0.5 ** (i // 5) for i in range(100)], epoch=50))
    assert [(step, sighting.severity) for step, sighting in seen] == [(16, Severity.INFO), (50, Severity.WARNING)]


def test_an_exponential_at_each_step_is_information() -> None:
    assert worst(judge(SchedulePerBatch(), _rows([0.1 * 0.9**i for i in range(100)], epoch=50))) is Severity.INFO


def test_schedules_by_epochs_cosines_lines_and_slow_exponentials_are_silent() -> None:
    schedules = (
        [0.1 * 0.5 ** (i // 20) for i in range(200)],
        [0.05 * (1 + math.cos(math.pi * i / 200)) for i in range(200)],
        [0.1 * (1 - i / 200) for i in range(200)],
        [0.1 * 0.99**i for i in range(200)],
    )
    for rates in schedules:
        assert judge(SchedulePerBatch(), _rows(rates, epoch=20)) == []


def test_rates_that_are_not_measured_change_nothing() -> None:
    assert judge(SchedulePerBatch(), rows(50, loss=1.0)) == []


def test_steps_counted_on_purpose_are_information_where_nobody_tells_of_epochs() -> None:
    rates = [0.7 ** (i // 60) for i in range(400)]
    assert worst(judge(SchedulePerBatch(), rows(400, lr=rates, loss=2.3))) is Severity.INFO
