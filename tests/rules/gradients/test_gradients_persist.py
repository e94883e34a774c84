import math

from sonde.core.findings import Severity
from sonde.rules.gradients.gradients_persist import GradientsPersist

from ..traces import judge, rows


def test_it_speaks_after_its_fewest_looks_and_only_as_information() -> None:
    seen = judge(GradientsPersist(), rows(5, grad__cosine=0.95))
    assert seen[0][0] == 1
    assert all(sighting.severity is Severity.INFO for _, sighting in seen)


def test_ordinary_cosines_say_nothing() -> None:
    assert not judge(GradientsPersist(), rows(20, grad__cosine=0.3))


def test_nan_and_missing_cosines_are_left_out() -> None:
    assert not judge(GradientsPersist(), rows(5, grad__cosine=math.nan))
    assert not judge(GradientsPersist(), rows(5, loss=1.0))
