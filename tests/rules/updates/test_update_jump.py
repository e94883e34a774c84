from sonde.core.findings import Severity
from sonde.rules.updates.update_jump import UpdateJump

from ..traces import flat, judge, rows


def test_a_jump_is_information_at_its_step_with_the_name() -> None:
    table = [{"update/ratio@a": value} for value in [*flat(20, 1e-3), 0.1, *flat(5, 1e-3)]]
    ((step, sighting),) = judge(UpdateJump(), table)
    assert (step, sighting.severity, sighting.where) == (21, Severity.INFO, ("a",))


def test_noise_and_slow_schedules_say_nothing() -> None:
    assert not judge(UpdateJump(), [{"update/ratio@a": value} for value in flat(300, 1e-3, noise=0.3)])
    assert not judge(UpdateJump(), [{"update/ratio@a": 1e-3 * 1.02**step} for step in range(100)])


def test_zero_nan_and_missing_ratios_are_left_out() -> None:
    table = [{"update/ratio@a": 0.0}, {"update/ratio@a": float("nan")}, {"loss": 1.0}] * 10
    assert not judge(UpdateJump(), table)
    assert not judge(UpdateJump(), rows(5, loss=1.0))
