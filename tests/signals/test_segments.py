import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sonde.signals.segments import Segment, SegmentMoments, moments, with_value
from sonde.signals.states import dump, load


def of(values: list[float]) -> Segment:
    segment = Segment()
    for value in values:
        segment = with_value(segment, value)
    return segment


_ROUNDING = 40 * 5e-324
"""Of as many values as are drawn here: floats below 1e-308 lie 5e-324 apart, however small they are."""


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=40), st.floats(-1e6, 1e6))
@example([5e-324, 0.0], 0.0)
@example([2.5e-162, 0.0], 0.0)
def test_moments_are_those_of_all_values(values: list[float], far: float) -> None:
    x = np.array(values) + far
    found = moments(of(x.tolist()))
    size, spread = float(np.abs(x).max()), float(x.std())
    assert found.mean == pytest.approx(float(x.mean()), abs=1e-12 * size + _ROUNDING)
    assert found.variance == pytest.approx(float(x.var(ddof=1)), rel=1e-6, abs=1e-12 * size**2 + _ROUNDING)
    if spread > 1e-3 * max(size, 1e-60):  # powers of smaller ones are zero
        z = (x - x.mean()) / spread
        assert found.skewness == pytest.approx(float((z**3).mean()), abs=1e-5)
        assert found.kurtosis == pytest.approx(float((z**4).mean()), rel=1e-5)


def test_what_is_not_finite_changes_nothing_and_few_values_say_little() -> None:
    assert of([math.nan, math.inf]) == Segment()
    assert all(map(math.isnan, moments(Segment())))
    assert moments(of([2.0, math.nan]))[:1] == (2.0,)
    assert math.isnan(moments(of([2.0])).variance)
    flat = moments(of([2.0, 2.0, 2.0]))
    assert (flat.mean, flat.variance) == (2.0, 0.0)
    assert math.isnan(flat.skewness)
    assert not math.isfinite(of([1e300, -1e300]).fourth), "no exception"


def test_a_state_comes_back_from_json() -> None:
    segment = of([1.0, 5.0, 2.0])
    assert load(dump(segment), Segment()) == segment
    assert isinstance(moments(segment), SegmentMoments)
