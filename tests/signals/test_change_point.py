import numpy as np
import pytest

from sonde.signals.change_point import ChangePoint

from .streams import correlated, run_timed


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.8])
def test_on_noise_about_one_p_value_in_twenty_is_below_a_twentieth(phi: float) -> None:
    noise = correlated(np.random.default_rng(0), (64, 2000), phi)
    p = run_timed(ChangePoint(), noise)[-1].p_value
    assert 0.01 < (p < 0.05).mean() < 0.09


def test_a_shift_is_found_where_it_happened_with_its_size() -> None:
    noise = np.random.default_rng(1).normal(size=(64, 500))
    steps = 7 * np.arange(64)
    out = run_timed(ChangePoint(), noise + 2.0 * (np.arange(64)[:, None] >= 40), steps)[-1]
    assert (out.p_value < 0.001).mean() > 0.95
    assert np.median(out.at) == 280
    assert (np.abs(out.at - 280) <= 14).mean() > 0.85
    assert np.median(out.shift) == pytest.approx(2.0, abs=0.15)


def test_a_shift_seen_in_few_values_yet_keeps_its_true_size() -> None:
    noise = np.random.default_rng(2).normal(size=64)
    out = run_timed(ChangePoint(), noise + 50.0 * (np.arange(64) >= 54))[-1]
    assert 53 <= out.at[0] <= 55
    assert out.shift[0] == pytest.approx(50.0, abs=2.0)
    assert out.p_value[0] < 0.01


def test_outliers_are_not_a_level() -> None:
    noise = np.random.default_rng(3).normal(size=64)
    noise[[20, 50]] = 1e6
    assert run_timed(ChangePoint(), noise)[-1].p_value[0] > 0.05


def test_constant_series_have_no_change_and_two_constants_have_one() -> None:
    assert run_timed(ChangePoint(), [0.1] * 64)[-1].p_value[0] == 1.0
    assert run_timed(ChangePoint(), [0.0] * 64)[-1].p_value[0] == 1.0
    out = run_timed(ChangePoint(), [1.0] * 40 + [2.0] * 24)[-1]
    assert (out.at[0], out.shift[0]) == (40, 1.0)
    assert out.p_value[0] < 1e-9


def test_it_abstains_until_the_window_is_full() -> None:
    out = run_timed(ChangePoint(), np.arange(63.0))[-1]
    assert np.isnan([out.shift[0], out.p_value[0]]).all()
    assert out.at[0] == -1


@pytest.mark.parametrize("wrong", [{"min_side": 1}, {"window": 16}])
def test_settings_outside_their_range_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="ChangePoint"):
        ChangePoint(**wrong)
