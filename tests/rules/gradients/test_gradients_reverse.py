import math

from sonde.core.findings import Severity
from sonde.rules.gradients.gradients_reverse import GradientsReverse

from ..traces import judge, rows


def test_it_speaks_after_its_fewest_looks_and_only_as_information() -> None:
    seen = judge(GradientsReverse(), rows(5, grad__cosine=-0.6))
    assert seen[0][0] == 2
    assert all(sighting.severity is Severity.INFO for _, sighting in seen)


def test_ordinary_cosines_say_nothing() -> None:
    assert not judge(GradientsReverse(), rows(20, grad__cosine=0.2))


def test_nan_and_missing_cosines_are_left_out() -> None:
    assert not judge(GradientsReverse(), rows(5, grad__cosine=math.nan))
    assert not judge(GradientsReverse(), rows(5, loss=1.0))
