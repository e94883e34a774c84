from sonde.core.findings import Severity
from sonde.rules.optimisers.second_moment_behind import SecondMomentBehind

from ..traces import judge, rows


def test_a_gradient_far_beyond_adam_s_memory_is_information() -> None:
    table = rows(40, loss=1.0)
    table[30] |= {"adam/v_ratio@a": 50.0, "adam/v_ratio@b": 1.0}
    ((step, sighting),) = judge(SecondMomentBehind(), table)
    assert (step, sighting.severity, sighting.where) == (31, Severity.INFO, ("a",))


def test_the_first_steps_and_ordinary_ratios_say_nothing() -> None:
    assert not judge(SecondMomentBehind(), rows(20, adam__v_ratio_at_a=50.0))
    assert not judge(SecondMomentBehind(), rows(200, adam__v_ratio_at_a=2.0))
    assert not judge(SecondMomentBehind(), rows(200, adam__v_ratio_at_a=float("nan")))
