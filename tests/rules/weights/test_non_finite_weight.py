"""WGT001 non-finite-weight."""

from sonde.core.findings import Severity
from sonde.rules.weights.non_finite_weight import NonFiniteWeight

from ..traces import judge, rows


def test_bad_weights_are_critical_and_named_the_least_spoilt_first() -> None:
    a, b = [0, 0, 0, 900, 900], [0, 0, 0, 2, 900]
    seen = judge(
        NonFiniteWeight(), rows(5, weight__nonfinite_at_a=a, weight__nonfinite_at_b=b, weight__nonfinite_at_c=0)
    )
    assert [(step, sighting.severity) for step, sighting in seen] == [(4, Severity.CRITICAL), (5, Severity.CRITICAL)]
    assert seen[0][1].where == ("b", "a")
    assert seen[1][1].since == 4


def test_finite_and_unmeasured_weights_are_silent() -> None:
    assert judge(NonFiniteWeight(), rows(5, weight__nonfinite_at_a=0)) == []
    assert judge(NonFiniteWeight(), rows(5, loss=1.0)) == []
