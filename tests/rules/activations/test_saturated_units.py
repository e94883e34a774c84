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


def test_a_loss_that_has_not_lost_half_of_its_start_may_not_where_it_was_so_from_the_first_look() -> None:
    slow = rows(200, loss=falling(200, start=1.0, end=0.6))
    from_start = [row | {"act/saturated@tanh": 0.7} for row in slow]
    assert alarms(judge(SaturatedUnits(), from_start))[0][0] == 100
    later = [row | {"act/saturated@tanh": 0.7 if i else 0.1} for i, row in enumerate(slow)]
    assert worst(judge(SaturatedUnits(), later)) is Severity.INFO


def test_few_saturated_values_and_none_at_all_say_nothing() -> None:
    assert not judge(SaturatedUnits(), [row | {"act/saturated@tanh": 0.2} for row in rows(120, loss=flat(120))])
    assert not judge(SaturatedUnits(), rows(120, loss=flat(120)))


def once(num: int, at: int, loss: list[float], **shares: float) -> list[dict[str, float]]:
    """A run with a single look at several functions."""
    table = rows(num, loss=loss)
    table[at] |= {f"act/saturated@{name}": share for name, share in shares.items()}
    return table


def test_functions_that_are_all_saturated_from_the_start_are_a_warning_at_the_first_look() -> None:
    seen = alarms(judge(SaturatedUnits(), once(80, 39, falling(80, start=1.3, end=0.4), one=0.83, two=0.88)))
    assert [step for step, _ in seen] == [40]
    assert seen[0][1].where == ("two", "one")


def test_one_function_among_others_or_a_loss_that_is_nearly_gone_is_no_alarm() -> None:
    assert not judge(SaturatedUnits(), once(80, 39, falling(80, end=0.4), one=0.2, two=0.95))
    assert worst(judge(SaturatedUnits(), once(300, 280, falling(300, end=0.0), one=0.9, two=0.9))) is Severity.INFO


def test_functions_that_saturate_as_the_loss_falls_are_sure_of_themselves() -> None:
    table = once(200, 19, falling(200, end=0.5), one=0.1, two=0.1)
    for at in (99, 149, 199):
        table[at] |= {"act/saturated@one": 0.9, "act/saturated@two": 0.9}
    assert worst(judge(SaturatedUnits(), table)) is Severity.INFO


def test_a_loss_that_cannot_have_fallen_need_not_be_waited_for_where_nearly_all_is_saturated() -> None:
    table = rows(90, loss=flat(90, noise=0.005))
    assert alarms(judge(SaturatedUnits(), [row | {"act/saturated@tanh": 0.95} for row in table]))[0][0] == 40
    assert not alarms(judge(SaturatedUnits(), [row | {"act/saturated@tanh": 0.7} for row in table]))
