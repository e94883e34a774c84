"""SCH002 lr-vanished."""

import math

from sonde.core.findings import Severity
from sonde.rules.schedules.lr_vanished import LrVanished

from ..traces import alarms, flat, judge, rows, worst


def _learned(rates: list[float], *, speed: float, floor: float) -> list[float]:
    """A loss that falls with the sum of rates, as gradient flow does."""
    way, losses = 0.0, []
    for rate, noise in zip(rates, flat(len(rates), noise=0.01), strict=True):
        losses.append((floor + (2 - floor) * math.exp(-speed * way)) * noise)
        way += rate
    return losses


def _cosine(length: int, num: int) -> list[float]:
    return [0.5 * (1 + math.cos(math.pi * min(1.0, i / length))) for i in range(num)]


def test_a_schedule_a_quarter_as_long_as_the_run_is_a_warning() -> None:
    rates = _cosine(80, 320)
    seen = alarms(judge(LrVanished(), rows(320, loss=_learned(rates, speed=0.02, floor=0.0), lr=rates, grad__norm=1.0)))
    assert 90 < seen[0][0] < 96  # ten steps after the cosine's end
    assert seen[0][1].since is not None
    assert 74 <= seen[0][1].since <= 80


def test_a_rate_that_is_nearly_gone_is_judged_by_the_losses_since_and_not_by_the_descent_before() -> None:
    rates = [0.94**i for i in range(300)]
    seen = alarms(judge(LrVanished(), rows(300, loss=_learned(rates, speed=0.05, floor=0.0), lr=rates, grad__norm=1.0)))
    assert 104 < seen[0][0] < 130
    assert seen[0][1].since is not None
    assert 74 <= seen[0][1].since <= 80


def test_a_last_epoch_at_a_rate_of_zero_is_at_most_information() -> None:
    rates = [1 - (i // 30) / 9 for i in range(300)]
    seen = judge(LrVanished(), rows(300, loss=_learned(rates, speed=0.01, floor=0.0), lr=rates))
    assert worst(seen) in (None, Severity.INFO)


def test_a_cosine_that_ends_with_the_run_is_at_most_information() -> None:
    rates = _cosine(300, 300)
    seen = judge(LrVanished(), rows(300, loss=_learned(rates, speed=0.01, floor=0.0), lr=rates))
    assert worst(seen) in (None, Severity.INFO)


def test_a_loss_that_was_flat_before_the_decay_is_silent() -> None:
    rates = [*[1.0] * 200, *_cosine(50, 200)]
    assert judge(LrVanished(), rows(400, loss=_learned(rates, speed=0.1, floor=0.5), lr=rates)) == []


def test_a_warmup_from_zero_is_silent() -> None:
    rates = [i / 100 for i in range(100)]
    assert judge(LrVanished(), rows(100, loss=_learned(rates, speed=0.1, floor=0.1), lr=rates)) == []


def test_a_rate_that_falls_back_to_where_it_leapt_up_from_has_not_vanished() -> None:
    rates = [*[0.01] * 150, *[5.0] * 3, *[0.01] * 250]
    losses = [*_learned([0.01] * 150, speed=0.5, floor=0.0), *flat(253, 1.9)]
    assert judge(LrVanished(), rows(403, loss=losses, lr=rates)) == []


def test_a_rate_of_nothing_for_as_long_as_there_was_one_is_a_warning_whatever_the_loss_is() -> None:
    rates = [*(1 - i / 40 for i in range(40)), *[0.0] * 60]
    seen = judge(LrVanished(), rows(100, lr=rates, loss=[0.1, -0.1] * 50))
    assert worst(seen) is Severity.WARNING
    assert alarms(seen)[0][0] in (81, 82)
    assert not alarms(judge(LrVanished(), rows(70, lr=rates[:70], loss=[0.1, -0.1] * 35)))


def test_of_several_optimisers_the_largest_rate_counts() -> None:
    gone = [*(1 - i / 40 for i in range(40)), *[0.0] * 60]
    assert alarms(judge(LrVanished(), rows(100, lr_at_a=gone, lr_at_b=gone, loss=[0.1, -0.1] * 50)))
    assert not alarms(judge(LrVanished(), rows(100, lr_at_a=gone, lr_at_b=1.0, loss=[0.1, -0.1] * 50)))
