import math

from sonde.core.findings import Severity
from sonde.rules.activations.non_finite_activation import NonFiniteActivation

from ..traces import judge, rows


def test_it_is_critical_at_once_where_the_loss_is_lost_too() -> None:
    table = rows(2, loss=[1.0, math.nan])
    table[1] |= {"act/nonfinite@a": 0.0, "act/nonfinite@b": 7.0}
    ((step, sighting),) = judge(NonFiniteActivation(), table)
    assert (step, sighting.severity, sighting.where) == (2, Severity.CRITICAL, ("b",))


def test_it_is_a_warning_where_the_loss_is_finite() -> None:
    ((_, sighting),) = judge(NonFiniteActivation(), [{"loss": 1.0, "act/nonfinite@b": 1.0}])
    assert sighting.severity is Severity.WARNING


def test_finite_and_missing_values_say_nothing() -> None:
    assert not judge(NonFiniteActivation(), [{"loss": math.nan, "act/nonfinite@b": 0.0}, {"loss": math.nan}])
