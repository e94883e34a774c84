import math

from sonde.core.findings import Severity
from sonde.rules.gradients.non_finite_gradient import NonFiniteGradient
from sonde.rules.scene import Fact

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
