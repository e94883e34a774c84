import math

from sonde.core.findings import Severity
from sonde.rules.gradients.non_finite_gradient import NonFiniteGradient
from sonde.rules.step_view import Fact

from ..traces import judge, rows


def test_it_is_critical_at_once_and_names_the_parameters() -> None:
    table = rows(3, loss=1.0, grad__norm=[1.0, math.nan, 1.0])
    table[1] |= {"grad/nonfinite@a.weight": 0.0, "grad/nonfinite@b.weight": 3.0}
    ((step, sighting),) = judge(NonFiniteGradient(), table)
    assert (step, sighting.severity, sighting.where) == (2, Severity.CRITICAL, ("b.weight",))


def test_an_infinite_norm_alone_is_enough() -> None:
    assert judge(NonFiniteGradient(), rows(1, grad__norm=math.inf))


def test_a_scaler_that_searches_is_left_alone() -> None:
    skipped = {1: [Fact("skipped-step", {"total": 1})]}
    assert not judge(NonFiniteGradient(), rows(1, grad__norm=math.nan, amp__scale=65536.0), facts=skipped)


def test_finite_and_missing_norms_say_nothing() -> None:
    assert not judge(NonFiniteGradient(), rows(5, loss=math.nan))
    assert not judge(NonFiniteGradient(), rows(5, grad__norm=1e30))


def test_after_steps_that_nobody_looked_at_the_first_parameter_is_unknown() -> None:
    table = rows(20, loss=[1.0] * 13 + [math.nan] * 7)
    table[10] |= {"grad/norm": 1.0}
    table[16] |= {"grad/norm": math.nan, "grad/norm@a.weight": math.nan, "grad/norm@b.weight": math.nan}
    ((step, sighting),) = judge(NonFiniteGradient(), table)
    assert (step, sighting.where) == (17, ())
    assert sighting.message.endswith(
        "of 2 parameters hold NaN or infinite values; where it began is not known: "
        "gradients were last measured at step 11"
    )
    without_loss = [{tag: value for tag, value in row.items() if tag != "loss"} for row in table]
    ((_, sighting),) = judge(NonFiniteGradient(), without_loss)
    assert sighting.where == ()


def test_with_a_finite_loss_the_gradient_is_where_it_began_however_long_nobody_looked() -> None:
    table = rows(20, loss=1.0)
    table[3] |= {"grad/norm": 1.0}
    table[16] |= {"grad/norm": math.nan, "grad/norm@a.weight": 1.0, "grad/norm@b.weight": math.nan}
    ((_, sighting),) = judge(NonFiniteGradient(), table)
    assert sighting.where == ("b.weight",)
    assert sighting.message == "the gradient of parameter `b.weight` holds NaN or infinite values"


def test_gradients_of_a_loss_that_is_not_finite_name_no_parameter() -> None:
    table = rows(3, loss=[1.0, 1.0, math.nan], grad__norm=[1.0, 1.0, math.nan])
    table[2] |= {"grad/norm@a.weight": math.nan}
    ((_, sighting),) = judge(NonFiniteGradient(), table)
    assert sighting.where == ()
    assert "the loss is not finite either" in sighting.message
    table[2] |= {"grad/norm@b.weight": 1.0}  # not all of them: that tells something
    ((_, sighting),) = judge(NonFiniteGradient(), table)
    assert sighting.where == ("a.weight",)
    assert "among them" not in sighting.message
