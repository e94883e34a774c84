import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.signals.moments import Moments, MomentsOut

values = st.lists(st.floats(-100, 100) | st.sampled_from([np.nan, -np.inf]), min_size=1, max_size=60)


def run(moments: Moments, series: list[float]) -> MomentsOut:
    state = moments.init(1)
    for x in series:
        state, out = moments.step(state, np.array([x]))
    return out


@given(values, st.sampled_from([0.95, 0.99]))
def test_they_are_the_weighted_moments_of_the_finite_values(series: list[float], decay: float) -> None:
    out = run(Moments(decay=decay), series)
    seen = np.array([x for x in series if np.isfinite(x)])
    if not len(seen):
        assert np.isnan(out.mean[0])
        return
    weights = decay ** np.arange(len(seen))[::-1]
    weights /= weights.sum()
    mean = (weights * seen).sum()
    second, third, fourth = ((weights * (seen - mean) ** k).sum() for k in (2, 3, 4))
    assert out.mean[0] == pytest.approx(mean, abs=1e-9)
    if len(seen) > 1:
        assert out.variance[0] == pytest.approx(second / (1 - (weights**2).sum()), rel=1e-6, abs=1e-9)
    if second > 1e-3:
        assert out.skewness[0] == pytest.approx(third / second**1.5, rel=1e-4, abs=1e-4)
        assert out.kurtosis[0] == pytest.approx(fourth / second**2, rel=1e-4, abs=1e-4)


@given(st.lists(st.floats(-1e3, 1e3) | st.sampled_from([np.nan, np.inf, 1e38]), min_size=1, max_size=40))
def test_of_few_tags_they_are_what_they_are_of_many(series: list[float]) -> None:
    moments = Moments()
    few, many = moments.init(2), moments.init(20)
    for x in series:
        with np.errstate(all="ignore"):
            few, out = moments.step(few, np.array([x, 1.0]))
            many, expected = moments.step(many, np.array([x, *[1.0] * 19]))
    for a, b in zip((*few, *out), (*many, *expected), strict=True):
        np.testing.assert_allclose(a, b[:2], rtol=1e-9, atol=1e-12)


def test_the_variance_of_white_noise_is_unbiased() -> None:
    rng = np.random.default_rng(5)
    moments = Moments(decay=0.95)
    state, collected = moments.init(400), []
    for _ in range(300):
        state, out = moments.step(state, rng.normal(scale=2.0, size=400))
        collected.append(out.variance.mean())
    assert collected[1] == pytest.approx(4.0, rel=0.2)  # from the second value on
    assert np.mean(collected[50:]) == pytest.approx(4.0, rel=0.02)


def test_a_normal_series_has_no_skew_and_a_kurtosis_of_three() -> None:
    rng = np.random.default_rng(6)
    moments = Moments(decay=0.999)
    state = moments.init(50)
    for row in rng.normal(size=(6000, 50)):
        state, out = moments.step(state, row)
    assert out.skewness.mean() == pytest.approx(0.0, abs=0.05)
    assert out.kurtosis.mean() == pytest.approx(3.0, abs=0.1)


def test_equal_values_have_no_variance_and_no_shape() -> None:
    out = run(Moments(), [2.0, 2.0, 2.0])
    assert out.variance[0] == 0.0
    assert np.isnan(out.skewness[0])
    assert np.isnan(out.kurtosis[0])


def test_one_value_has_a_mean_and_nothing_else() -> None:
    out = run(Moments(), [7.0])
    assert out.mean[0] == 7.0
    assert np.isnan([out.variance[0], out.skewness[0], out.kurtosis[0]]).all()
