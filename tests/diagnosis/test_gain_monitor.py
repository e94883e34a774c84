"""The series `gradient_monitor/*`."""

import math

import numpy as np
import pytest

from sonde.core.frames import Columns, Frame
from sonde.diagnosis.gain_monitor import GainMonitor
from sonde.rules.gradients.gain_drift import GainDrift
from sonde.rules.history.run_summary import RunSummary
from sonde.rules.rule import Look
from sonde.rules.step_view import StepView, StepViews


def _told(monitor: GainMonitor, gains: list[float]) -> list[dict[str, float]]:
    state, told = monitor.init(), []
    for step, gain in enumerate(gains, 1):
        state, values = monitor.step(state, StepView(step, {"gain/mean": gain}, {}, ()))
        told.append({tag.removeprefix("gradient_monitor/"): value for tag, value in values.items()})
    return told


def test_every_check_gives_the_gain_its_average_over_five_and_from_the_third_on_the_rise_over_them() -> None:
    gains = np.random.default_rng(0).uniform(0.8, 1.3, 30).tolist()
    for i, values in enumerate(_told(GainMonitor(), gains)):
        window = gains[max(0, i - 4) : i + 1]
        expected = {"mean_gain": gains[i], "mean_gain_ma": float(np.mean(window))}
        if i >= 2:
            expected["mean_gain_drift"] = window[-1] / window[0] - 1
        assert values == pytest.approx(expected)


def test_steps_without_a_check_give_nothing_and_break_nothing() -> None:
    monitor = GainMonitor()
    told = _told(monitor, [1.0, math.nan, 1.1, 0.0, math.inf, 1.2])
    assert [bool(values) for values in told] == [True, False, True, False, False, True]
    assert told[-1] == pytest.approx({"mean_gain": 1.2, "mean_gain_ma": 1.1, "mean_gain_drift": 0.2})
    assert monitor.step(monitor.init(), StepView(1, {"loss": 1.0}, {}, ()))[1] == {}


def test_a_window_that_was_given_by_name_is_the_rules_and_the_series() -> None:
    told = _told(GainMonitor(rule=GainDrift(window=3)), [1.0, 1.1, 1.2, 1.3])
    assert told[-1] == pytest.approx({"mean_gain": 1.3, "mean_gain_ma": 1.2, "mean_gain_drift": 1.3 / 1.1 - 1})


def test_the_rule_speaks_of_the_numbers_that_are_drawn() -> None:
    gains = np.exp(np.cumsum(np.random.default_rng(2).normal(0.03, 0.05, 60))).tolist()
    tags = ["gain/mean", *(f"gain/block@{i}" for i in range(6))]
    columns, views, rule = Columns("gain", tags), StepViews(), GainDrift()
    state, monitor = rule.init(), GainMonitor(rule=rule)
    drawn, num_seen = monitor.init(), 0
    for step, gain in enumerate(gains, 1):
        view = views.take(step, [Frame(columns, step, 0.0, np.full(7, gain, np.float32))], [])
        drawn, values = monitor.step(drawn, view)
        state, seen = rule.step(state, Look(view, views, RunSummary()))
        for sighting in seen:
            num_seen += 1
            assert sighting.evidence[0].value == values["gradient_monitor/mean_gain"]
            assert sighting.evidence[0].expected == values["gradient_monitor/mean_gain_ma"]
    assert num_seen > 3
