import numpy as np
import pytest

from sonde.signals.trend import Trend

from .streams import correlated, run_timed


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.8])
def test_on_noise_about_one_p_value_in_twenty_is_below_a_twentieth(phi: float) -> None:
    noise = correlated(np.random.default_rng(0), (64, 2000), phi)
    p = run_timed(Trend(), noise)[-1].p_value
    assert 0.02 < (p < 0.05).mean() < 0.08


def test_the_slope_is_per_training_step_however_irregular_the_samples() -> None:
    rng = np.random.default_rng(1)
    steps = np.cumsum(rng.integers(1, 40, size=64))
    out = run_timed(Trend(), 3.0 - 0.02 * steps + 0.1 * rng.normal(size=64), steps)[-1]
    assert out.slope[0] == pytest.approx(-0.02, rel=0.02)
    assert out.p_value[0] < 1e-6


def test_only_the_window_counts() -> None:
    series = np.concatenate((np.linspace(0, 100, 50), 7.0 + 0.1 * np.random.default_rng(2).normal(size=64)))
    assert run_timed(Trend(), series)[-1].p_value[0] > 0.01


def test_it_abstains_below_the_minimum_of_values() -> None:
    outs = run_timed(Trend(), np.arange(16.0))
    assert np.isnan([outs[14].slope[0], outs[14].p_value[0]]).all()
    assert outs[15].p_value[0] < 0.001


@pytest.mark.parametrize("value", [0.0, 0.1, -3e38])
def test_a_constant_series_has_no_significant_slope(value: float) -> None:
    assert run_timed(Trend(), [value] * 40)[-1].p_value[0] > 0.1


@pytest.mark.parametrize("wrong", [{"min_values": 5}, {"window": 12}])
def test_settings_outside_their_range_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="Trend"):
        Trend(**wrong)
