import math

import pytest

from sonde.core.findings import Severity
from sonde.rules.gradients.gain_drift import GainDrift

from ..traces import alarms, judge, worst


def checks(gains: list[float], depth: int = 12) -> list[dict[str, float]]:
    return [{"gain/mean": gain} | {f"gain/block@{block}": gain for block in range(depth)} for gain in gains]


def test_the_limit_is_a_share_of_the_budget_of_amplification() -> None:
    assert [round(GainDrift().limit(depth), 2) for depth in (6, 12, 24)] == [1.76, 1.33, 1.15]


def test_three_rises_in_a_row_by_more_than_a_tenth_are_drift() -> None:
    seen = judge(GainDrift(), checks([1.0, 1.02, 1.08, 1.15]))
    assert [(step, sighting.severity) for step, sighting in seen] == [(4, Severity.INFO)]


def test_drift_past_the_limit_is_a_warning() -> None:
    assert worst(judge(GainDrift(), checks([1.2, 1.25, 1.32, 1.4]))) is Severity.WARNING


@pytest.mark.parametrize("gains", [[1.0, 1.3], [1.0, 1.05, 0.96, 1.04, 0.97, 1.05], [1.0, 1.0, 1.25, 1.25, 1.25]])
def test_two_checks_natural_variation_and_a_single_jump_are_not(gains: list[float]) -> None:
    assert not judge(GainDrift(), checks(gains))


def test_a_gain_beyond_the_limit_on_either_side_is_information_at_the_third_check() -> None:
    for gain in (1.5, 0.7):
        seen = judge(GainDrift(), checks([gain] * 3))
        assert [(step, sighting.severity) for step, sighting in seen] == [(3, Severity.INFO)]


def test_a_gain_that_falls_is_the_vanishing_side() -> None:
    assert worst(judge(GainDrift(), checks([0.8, 0.76, 0.72, 0.65]))) is Severity.WARNING


def test_the_numbers_of_the_monitor_series() -> None:
    rule = GainDrift()
    checks = rule.init().up
    assert all(math.isnan(number) for number in rule.numbers(checks))
    for gain in (1.0, 1.1, 1.2, math.nan, 0.0, 1.3, 1.4, 1.5):
        checks, out = rule.checked(checks, gain)
        assert (out is None) == (not gain > 0)
    mean, average, drift = rule.numbers(checks)
    assert (mean, round(average, 6), round(drift, 6)) == (1.5, 1.3, round(1.5 / 1.1 - 1, 6))


def test_nan_and_missing_checks_are_left_out() -> None:
    assert not judge(GainDrift(), [{"loss": 1.0}, *checks([math.nan] * 5)])


def test_past_the_limit_three_rising_checks_are_enough() -> None:
    seen = judge(GainDrift(), checks([1.49, 1.7, 2.02], depth=6))
    assert [(step, sighting.severity) for step, sighting in seen] == [(3, Severity.WARNING)]


def test_gains_that_change_while_much_is_learned_are_no_trouble() -> None:
    gains = [1.0, 1.02, 1.08, 1.15, 1.3, 1.4, 1.5, 1.6]
    start = [{"loss": 2.0 * 0.95**i} for i in range(30)]
    falls = [row | {"loss": 0.4 * 0.95**i} for i, row in enumerate(checks(gains))]
    climbs = [row | {"loss": 2.0 * 1.1**i} for i, row in enumerate(checks(gains))]
    assert not alarms(judge(GainDrift(), [*start, *falls]))
    assert alarms(judge(GainDrift(), [*start, *climbs]))


def test_a_loss_that_is_given_back_after_the_drift_is_a_warning_without_another_check() -> None:
    start = [{"loss": 2.0 * 0.95**i} for i in range(60)]
    drifts = [row | {"loss": 0.08} for row in checks([1.45, 1.5, 1.61, 1.8, 2.0], depth=7)]
    given_back = [{"loss": min(1.6, 0.08 * 1.1**i)} for i in range(80)]
    seen = judge(GainDrift(), [*start, *drifts, *given_back])
    assert alarms(seen)[0][0] > 100
    assert not alarms(judge(GainDrift(), [*start, *drifts, *([{"loss": 0.09}] * 80)]))


def test_a_loss_that_rises_without_drift_before_it_is_not_the_gains() -> None:
    start = [{"loss": 2.0 * 0.95**i} for i in range(60)]
    steady = [row | {"loss": 0.08} for row in checks([1.7] * 5, depth=7)]
    given_back = [{"loss": min(1.6, 0.08 * 1.1**i)} for i in range(80)]
    assert not alarms(judge(GainDrift(), [*start, *steady, *given_back]))
