"""LOS001 non-finite-loss."""

from sonde.core.findings import Severity
from sonde.rules.losses.non_finite_loss import NonFiniteLoss

from ..traces import falling, judge, rows


def test_the_first_nan_is_critical_at_its_step() -> None:
    seen = judge(NonFiniteLoss(), rows(30, loss=[*falling(20), *[float("nan")] * 10], grad__norm=1.0))
    assert seen[0][0] == 21
    assert seen[0][1].severity is Severity.CRITICAL
    assert "NaN at step 21" in seen[0][1].message
    assert len(seen) == 10
    assert seen[-1][1].since == 21


def test_infinity_before_nan_is_told_apart() -> None:
    seen = judge(NonFiniteLoss(), rows(4, loss=[1.0, 2.0, float("inf"), float("nan")]))
    assert "infinite at step 3" in seen[-1][1].message


def test_the_bad_part_of_a_composite_loss_is_named_also_without_a_whole() -> None:
    seen = judge(NonFiniteLoss(), rows(3, loss__part_at_D=1.0, loss__part_at_G=[1.0, float("nan"), 1.0]))
    assert [(step, sighting.where) for step, sighting in seen] == [(2, ("G",))]


def test_a_finite_run_and_one_without_a_loss_are_silent() -> None:
    assert judge(NonFiniteLoss(), rows(200, loss=falling(200))) == []
    assert judge(NonFiniteLoss(), rows(20, lr=0.1)) == []
