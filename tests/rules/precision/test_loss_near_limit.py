"""NUM003 loss-near-limit."""

from sonde.core.findings import Severity
from sonde.rules.precision.loss_near_limit import LossNearLimit
from sonde.rules.step_view import Fact

from ..traces import alarms, flat, judge, rows, worst

HALF = {1: [Fact("preflight", {"check": "half-loss", "where": [], "value": 65504.0})]}


def test_a_half_precision_loss_near_its_limit_is_a_warning_from_the_fifth_step_on() -> None:
    seen = judge(LossNearLimit(), rows(30, loss=flat(30, 25_000.0)), facts=HALF)
    assert seen[0][0] == 1
    assert seen[0][1].severity is Severity.INFO
    assert alarms(seen)[0][0] == 5
    assert "65,504" in seen[-1][1].message


def test_the_same_loss_in_another_format_says_nothing() -> None:
    assert judge(LossNearLimit(), rows(30, loss=flat(30, 25_000.0))) == []


def test_a_loss_with_room_says_nothing() -> None:
    assert judge(LossNearLimit(), rows(30, loss=flat(30, 2_000.0)), facts=HALF) == []


def test_a_loss_that_falls_away_from_the_limit_is_information() -> None:
    losses = [40_000.0 * 0.9**step for step in range(30)]
    assert worst(judge(LossNearLimit(), rows(30, loss=losses), facts=HALF)) is Severity.INFO


def test_one_high_loss_is_nothing() -> None:
    losses = [10.0] * 10 + [60_000.0] + [10.0] * 10
    assert judge(LossNearLimit(), rows(21, loss=losses), facts=HALF) == []


def test_losses_below_zero_count_by_their_size_and_infinite_ones_do_not() -> None:
    losses = [-25_000.0] * 3 + [float("nan"), float("-inf")] + [-25_000.0] * 3
    assert alarms(judge(LossNearLimit(), rows(8, loss=losses), facts=HALF))[0][0] == 7
