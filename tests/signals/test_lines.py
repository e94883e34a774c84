import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.signals import lines


@given(st.integers(0, 10_000), st.integers(6, 30), st.integers(0, 10))
def test_the_line_is_that_of_polyfit_over_what_was_seen(seed: int, num_values: int, num_missing: int) -> None:
    rng = np.random.default_rng(seed)
    steps = np.sort(rng.choice(1000, num_values, replace=False)).astype(float)
    values = rng.normal(size=num_values) + rng.normal() * steps / 100
    pad = np.full(num_missing, np.nan)
    found = lines.fit(np.concatenate((pad, steps))[None], np.concatenate((pad, values))[None])
    slope, level = np.polyfit(steps, values, 1)
    assert found.slope[0] == pytest.approx(slope, rel=1e-6, abs=1e-9)
    assert found.level[0] == pytest.approx(level + slope * steps.mean(), rel=1e-6, abs=1e-6)
    assert found.reach[0] == pytest.approx(steps[-1] - steps.mean())
    assert found.r_squared[0] == pytest.approx(np.corrcoef(steps, values)[0, 1] ** 2, abs=1e-6)


def test_the_error_of_the_slope_is_the_scatter_of_slopes_of_white_noise() -> None:
    noise = np.random.default_rng(0).normal(size=(2000, 64))
    found = lines.fit(np.broadcast_to(np.arange(64.0), noise.shape), noise)
    assert np.median(found.slope_error) == pytest.approx(found.slope.std(), rel=0.15)
    assert np.median(found.level_error) == pytest.approx(found.level.std(), rel=0.15)


def test_a_curve_that_bends_is_not_taken_for_noise() -> None:
    steps = np.arange(64.0)[None]
    noise = 0.01 * np.random.default_rng(0).normal(size=(1, 64))
    bent = lines.fit(steps, (steps / 64) ** 2 + noise)
    assert bent.slope[0] / bent.slope_error[0] > 20


def test_a_constant_series_has_no_slope_beyond_rounding() -> None:
    found = lines.fit(np.arange(20.0)[None], np.full((1, 20), 0.1))
    assert abs(found.slope[0]) < found.slope_error[0]
    assert found.r_squared[0] == 0.0


@given(st.integers(0, 10_000), st.integers(4, 30))
def test_a_row_alone_has_the_line_that_it_has_among_others(seed: int, num_values: int) -> None:
    rng = np.random.default_rng(seed)
    steps = np.sort(rng.choice(1000, (3, num_values), replace=True) + np.arange(num_values), axis=1).astype(float)
    values = np.cumsum(rng.normal(size=steps.shape), axis=1)
    together = lines.fit(steps, values)
    for place in range(len(steps)):
        alone = lines.fit(steps[place : place + 1], values[place : place + 1])
        for one, many in zip(alone, together, strict=True):
            assert one[0] == pytest.approx(many[place], rel=1e-6, abs=1e-9)
