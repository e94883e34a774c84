from sonde.core.findings import Severity
from sonde.rules.optimisers.second_moment_health import SecondMomentHealth

from ..traces import judge, rows


def test_a_memory_far_from_the_gradients_is_information_at_the_third_look() -> None:
    seen = judge(SecondMomentHealth(), rows(110, adam__v_ratio_at_a=1e-3, adam__v_ratio_at_b=2e-3))
    assert seen[0][0] == 103
    assert {sighting.severity for _, sighting in seen} == {Severity.INFO}


def test_zeros_in_most_tensors_are_told() -> None:
    seen = judge(SecondMomentHealth(), rows(110, adam__v_ratio_at_a=1.0, adam__zero_share_at_a=0.8))
    assert "exactly zero" in seen[0][1].message


def test_ordinary_moments_and_nan_say_nothing() -> None:
    assert not judge(SecondMomentHealth(), rows(200, adam__v_ratio_at_a=0.5, adam__zero_share_at_a=0.1))
    assert not judge(SecondMomentHealth(), rows(200, adam__v_ratio_at_a=float("nan")))
