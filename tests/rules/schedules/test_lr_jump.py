"""SCH001 lr-jump."""

from sonde.core.findings import Severity
from sonde.rules.schedules.lr_jump import LrJump

from ..traces import alarms, falling, flat, judge, rows, worst


def _spike(rate: float, num: int = 4) -> list[float]:
    return [*[1e-3] * 100, *[rate] * num, *[1e-3] * (100 - num)]


def test_a_jump_that_hurts_is_a_warning() -> None:
    losses = [*falling(100), *flat(100, 5.0)]
    seen = judge(LrJump(), rows(200, loss=losses, lr=_spike(0.5), grad__norm=1.0))
    assert alarms(seen)[0][0] == 102
    assert alarms(seen)[0][1].since == 101
    assert "0.001 to 0.5" in alarms(seen)[0][1].message


def test_a_jump_without_harm_is_information() -> None:
    assert worst(judge(LrJump(), rows(200, loss=falling(200), lr=_spike(0.5)))) is Severity.INFO


def test_a_restart_that_bumps_the_loss_is_information() -> None:
    rate = [0.1 * (1 - i % 100 / 100) for i in range(200)]
    losses = [*falling(100), *falling(100, start=1.5)]
    assert worst(judge(LrJump(), rows(200, loss=losses, lr=rate))) is Severity.INFO


def test_smooth_schedules_and_missing_rates_are_silent() -> None:
    assert judge(LrJump(), rows(200, loss=falling(200), lr=[min(1, (i + 1) / 50) for i in range(200)])) == []
    assert judge(LrJump(), rows(100, loss=falling(100))) == []


def test_harm_that_shows_after_the_way_back_is_the_jumps() -> None:
    losses = [*falling(103), *flat(97, 5.0)]
    seen = alarms(judge(LrJump(), rows(200, loss=losses, lr=_spike(0.5, num=1), grad__norm=1.0)))
    assert (seen[0][0], seen[0][1].since) == (105, 101)


def test_a_decay_in_steps_is_no_leap() -> None:
    assert judge(LrJump(), rows(200, loss=falling(200), lr=[0.7 ** (i // 50) for i in range(200)])) == []
