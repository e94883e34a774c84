from sonde.core.findings import Severity
from sonde.rules.gradients.gradient_shape import GradientShape

from ..traces import judge, rows


def percentiles(name: str, p1: float, p25: float, p50: float, p75: float, p99: float) -> dict[str, float]:
    values = {1: p1, 25: p25, 50: p50, 75: p75, 99: p99}
    return {f"grad/p{q}@{name}": value for q, value in values.items()}


BELL = percentiles("0.weight", -2.33, -0.67, 0.0, 0.67, 2.33)


def test_a_bell_about_zero_says_nothing() -> None:
    assert not judge(GradientShape(), [BELL] * 20)


def test_heavy_tails_are_named_at_the_third_look() -> None:
    seen = judge(GradientShape(), [BELL | percentiles("2.weight", -40.0, -0.5, 0.0, 0.5, 40.0)] * 4)
    assert seen[0][0] == 3
    assert seen[0][1].severity is Severity.INFO
    assert seen[0][1].where == ("2.weight",)
    assert "heavy-tailed" in seen[0][1].message


def test_off_centre_and_collapsed_gradients_are_told_apart() -> None:
    shifted = judge(GradientShape(), [percentiles("0.weight", 0.5, 0.9, 1.0, 1.1, 1.5)] * 3)
    collapsed = judge(GradientShape(), [percentiles("0.weight", -1.0, 0.0, 0.0, 0.0, 1.0)] * 3)
    assert "off centre" in shifted[0][1].message
    assert "collapsed" in collapsed[0][1].message


def test_it_abstains_without_percentiles() -> None:
    assert not judge(GradientShape(), rows(5, loss=1.0))
