"""SCH007 rate-runs-away."""

import math

from sonde.core.findings import Severity
from sonde.rules.schedules.rate_runs_away import RateRunsAway

from ..traces import alarms, falling, judge, rows, worst

MATRICES = {"update__ratio_at_a_weight": 0.2, "weight__rms_at_a_weight": 1.0}


def _growing(num: int, factor: float = 1.03) -> list[float]:
    return [0.02 * factor**step for step in range(num)]


def _turning(num: int, at: int) -> list[float]:
    """A loss that falls until a step and then grows."""
    losses = falling(num, noise=0.02)
    return [loss * math.exp(0.03 * max(0, step - at)) for step, loss in enumerate(losses)]


def test_exponential_growth_is_information_as_long_as_the_loss_falls() -> None:
    seen = judge(RateRunsAway(), rows(150, loss=falling(150), lr=_growing(150), **MATRICES))
    assert worst(seen) is Severity.INFO
    assert seen[0][0] == 79  # 1.03^78 is 10
    assert seen[0][1].since == 1


def test_it_is_a_warning_soon_after_the_loss_has_turned() -> None:
    seen = alarms(judge(RateRunsAway(), rows(180, loss=_turning(180, 120), lr=_growing(180), **MATRICES)))
    assert 120 < seen[0][0] < 150


def test_small_steps_do_no_harm() -> None:
    calm = {**MATRICES, "update__ratio_at_a_weight": 0.002}
    assert worst(judge(RateRunsAway(), rows(180, loss=_turning(180, 120), lr=_growing(180), **calm))) is Severity.INFO


def test_growth_once_an_epoch_counts_as_well() -> None:
    rates = [0.02 * 1.1 ** (step // 10) for step in range(400)]
    assert alarms(judge(RateRunsAway(), rows(400, loss=_turning(400, 300), lr=rates, **MATRICES)))


def test_warmups_that_add_and_one_cycle_say_nothing() -> None:
    linear = [1e-5 * (step + 1) for step in range(300)]
    cycle = [1.0 - 0.96 * (1 + math.cos(math.pi * step / 300)) / 2 for step in range(300)]
    for rates in (linear, cycle, [0.1] * 300, _growing(300, 0.97)):
        assert judge(RateRunsAway(), rows(300, loss=_turning(300, 100), lr=rates, **MATRICES)) == []


def test_a_rate_that_falls_once_begins_anew_and_a_missing_one_is_left_out() -> None:
    rates = _growing(70) + _growing(70)
    assert judge(RateRunsAway(), rows(140, loss=falling(140), lr=rates, **MATRICES)) == []
    gaps = [None if step % 3 else rate for step, rate in enumerate(_growing(150))]
    assert judge(RateRunsAway(), rows(150, loss=falling(150), lr=gaps, **MATRICES))
