import math

import numpy as np
import pytest

from sonde.signals.p_values import below, bridge_exceeds, critical_t, mixture_quantile, two_sided


def exact_two_sided(t: float, freedom: float) -> float:
    """Student's density, summed up from t on in small steps of x = tan."""
    norm = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
    angle = np.linspace(math.atan(t), math.pi / 2, 200_001)[:-1]
    middle = angle + (angle[1] - angle[0]) / 2
    x = np.tan(middle)
    density = norm * (1 + x**2 / freedom) ** (-(freedom + 1) / 2) * (1 + x**2)
    return float(2 * density.sum() * (angle[1] - angle[0]))


@pytest.mark.parametrize("freedom", [4.0, 7.5, 30.0, 1000.0])
@pytest.mark.parametrize("t", [0.0, 0.5, 1.0, 2.0, 3.0, 5.0])
def test_students_tail_is_close_to_the_integral(t: float, freedom: float) -> None:
    assert two_sided(np.array([t]), np.array([freedom]))[0] == pytest.approx(exact_two_sided(t, freedom), abs=0.003)


@pytest.mark.parametrize("t", [2.0, 5.0, 12.7])
def test_at_one_degree_of_freedom_it_errs_on_the_cautious_side(t: float) -> None:
    assert two_sided(np.array([t]), np.array([1.0]))[0] > exact_two_sided(t, 1.0)


def test_the_critical_t_has_the_probability_of_its_z() -> None:
    freedom = np.array([1.0, 3.0, 10.0, 1e4])
    normal = 2 * below(np.array([-2.3]))[0]
    assert two_sided(critical_t(2.3, freedom), freedom) == pytest.approx(np.full(4, normal))


def test_a_nan_has_no_probability() -> None:
    assert np.isnan(below(np.array([np.nan]))[0])
    assert np.isnan(two_sided(np.array([np.nan]), np.array([3.0]))[0])
    assert np.isnan(bridge_exceeds(np.array([np.nan]))[0])


def test_simulated_bridges_leave_the_band_as_often_as_it_says() -> None:
    steps = np.random.default_rng(0).normal(size=(4000, 1000))
    walks = np.cumsum(steps - steps.mean(axis=1, keepdims=True), axis=1) / math.sqrt(1000)
    highest = np.abs(walks).max(axis=1)
    for height in (0.8, 1.0, 1.36):
        # A walk of discrete steps misses the peaks in between, hence a little less.
        assert (highest > height).mean() == pytest.approx(bridge_exceeds(np.array([height]))[0], abs=0.04)
    assert bridge_exceeds(np.array([0.0, 0.29]))[0] == 1.0


def test_the_quantile_of_a_mixture_is_that_of_its_samples() -> None:
    rng = np.random.default_rng(1)
    mean, deviation, weight = np.array([0.0, 3.0, 8.0]), np.array([1.0, 0.5, 0.0]), np.array([0.5, 0.3, 0.2])
    part = rng.choice(3, 200_000, p=weight)
    samples = mean[part] + deviation[part] * rng.normal(size=200_000)
    for p in (0.025, 0.3, 0.7, 0.975):
        found = mixture_quantile(mean[None], deviation[None], weight, p)[0]
        assert found == pytest.approx(np.quantile(samples, p), abs=0.03)
