from sonde.core.findings import Severity
from sonde.rules.activations.saturated_units import SaturatedUnits

from ..traces import alarms, falling, flat, judge, rows, worst


def test_it_is_information_at_the_second_look_and_a_warning_once_training_is_stuck() -> None:
    seen = judge(SaturatedUnits(), [row | {"act/saturated@tanh": 0.7} for row in rows(120, loss=flat(120, noise=0.01))])
    assert seen[0][0] == 2
    assert alarms(seen)[0][0] == 100


def test_a_loss_that_falls_may_saturate() -> None:
    seen = judge(SaturatedUnits(), [row | {"act/saturated@gate": 0.95} for row in rows(200, loss=falling(200))])
    assert worst(seen) is Severity.INFO


def test_few_saturated_values_and_none_at_all_say_nothing() -> None:
    assert not judge(SaturatedUnits(), [row | {"act/saturated@tanh": 0.2} for row in rows(120, loss=flat(120))])
    assert not judge(SaturatedUnits(), rows(120, loss=flat(120)))
