"""SCH006 sawtooth-descent."""

from sonde.core.findings import Severity
from sonde.rules.schedules.sawtooth_descent import SawtoothDescent

from ..traces import falling, judge, rows, worst


def test_great_rises_among_small_falls_are_information() -> None:
    losses = [2.0 - 0.002 * i + 0.04 * (29 - i % 30) for i in range(200)]
    assert worst(judge(SawtoothDescent(), rows(200, loss=losses))) is Severity.INFO


def test_a_noisy_learning_curve_is_no_saw() -> None:
    for seed in range(3):
        assert judge(SawtoothDescent(), rows(250, loss=falling(250, seed=seed))) == []
