import numpy as np
import pytest

from sonde.signals.plateau import Plateau

from .streams import correlated, run


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.8])
def test_noise_about_a_level_does_not_read_as_improvement(phi: float) -> None:
    noise = 2.0 + 0.5 * correlated(np.random.default_rng(0), (100, 1000), phi)
    out = run(Plateau(), noise)[-1]
    assert out.z.std() == pytest.approx(1.0, abs=0.2)
    assert (np.abs(out.z) > 4).mean() < 0.01
    assert np.median(out.movement) == pytest.approx(1.0, abs=0.2)


def test_a_noisy_metric_that_keeps_setting_records_is_still_a_plateau() -> None:
    # With patience on the best value, these records would have put off the plateau again and again.
    noise = 1.0 + 0.02 * np.random.default_rng(3).standard_t(3, size=2000)
    records = np.flatnonzero(np.diff(np.minimum.accumulate(noise)) < 0)
    assert (records > 200).sum() >= 1
    plateau = np.array([out.plateau[0] for out in run(Plateau(half=200), noise)[400:]])
    assert plateau.min() > 0.6
    assert np.median(plateau) > 0.95


def test_a_slow_fall_below_the_noise_of_single_values_is_progress() -> None:
    rng = np.random.default_rng(1)
    out = run(Plateau(), 2.0 - 0.002 * np.arange(100.0) + 0.05 * rng.normal(size=100))[-1]
    assert out.improvement[0] == pytest.approx(0.05, abs=0.015)
    assert out.z[0] > 4
    assert out.plateau[0] < 0.01


def test_where_the_noise_is_too_large_it_says_that_it_cannot_tell() -> None:
    out = run(Plateau(), 1.0 + 5.0 * np.random.default_rng(2).normal(size=(100, 500)))[-1]
    assert np.mean(out.plateau) == pytest.approx(0.5, abs=0.05)


def test_it_is_the_score_of_the_specification_over_its_value_on_noise() -> None:
    series = 3.0 + np.random.default_rng(4).normal(size=100)
    reference = np.median(series[:50])
    score = np.mean(np.abs(series[50:] - reference))
    line = reference - (reference - np.median(series[50:])) * (np.arange(100) - 24.5) / 50
    sigma = 1.4826 * np.median(np.abs(series - line))
    assert run(Plateau(), series)[-1].movement[0] == pytest.approx(score / (sigma * np.sqrt(2 / np.pi)))


def test_a_constant_series_is_a_plateau_and_a_spike_does_not_change_that() -> None:
    assert run(Plateau(), [0.7] * 100)[-1].plateau[0] == pytest.approx(1.0)
    noise = 1.0 + 0.01 * np.random.default_rng(5).normal(size=100)
    noise[60] = 1e6
    assert abs(run(Plateau(), noise)[-1].z[0]) < 3


def test_it_abstains_until_the_window_is_full() -> None:
    outs = run(Plateau(half=4), np.arange(8.0)[::-1] + 1)
    assert np.isnan([outs[6].movement[0], outs[6].improvement[0], outs[6].z[0], outs[6].plateau[0]]).all()
    assert outs[7].improvement[0] == pytest.approx(4 / 6.5)


@pytest.mark.parametrize("wrong", [{"half": 3}, {"min_improvement": -0.1}])
def test_settings_outside_their_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="Plateau"):
        Plateau(**wrong)  # type: ignore[arg-type]
