from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.signals.oscillation import Oscillation

from .streams import run

values = st.lists(st.integers(-50, 50).map(float) | st.just(np.nan), min_size=1, max_size=30)


@given(values)
def test_it_is_the_slow_definition(series: list[float]) -> None:
    out = run(Oscillation(window=12, min_values=4), series)[-1]
    seen = np.array([x for x in series if np.isfinite(x)])[-12:]
    d = np.diff(seen)
    if len(seen) < 4 or not d.any():
        assert np.isnan([out.turns[0], out.autocorrelation[0], out.amplitude[0], out.sawtooth[0]]).all()
        assert out.num_teeth[0] == 0
        return
    assert out.turns[0] == pytest.approx(np.mean([a * b < 0 for a, b in pairwise(d)]))
    energy = np.sqrt((d[1:] ** 2).sum() * (d[:-1] ** 2).sum())
    expected = (d[1:] * d[:-1]).sum() / energy if energy else np.nan
    assert out.autocorrelation[0] == pytest.approx(expected, nan_ok=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        assert out.amplitude[0] == pytest.approx(np.median(np.abs(d)) / abs(np.median(seen)), nan_ok=True)
    rise = d[d > 0].mean() if (d > 0).any() else 0.0
    fall = -d[d < 0].mean() if (d < 0).any() else 0.0
    assert out.sawtooth[0] == pytest.approx((rise - fall) / (rise + fall))
    assert out.num_teeth[0] == ((d > 3 * fall).sum() if fall > 0 else 0)


def test_white_noise_turns_two_times_in_three() -> None:
    out = run(Oscillation(), np.random.default_rng(0).normal(size=(32, 2000)) + 10)[-1]
    assert out.turns.mean() == pytest.approx(2 / 3, abs=0.01)
    assert out.autocorrelation.mean() == pytest.approx(-0.5, abs=0.02)
    assert out.sawtooth.mean() == pytest.approx(0.0, abs=0.02)


def test_descent_in_spikes_is_told_from_plain_descent_and_from_one_spike() -> None:
    rng = np.random.default_rng(1)
    plain = 3.0 - 0.02 * np.arange(32) + 0.01 * rng.normal(size=32)
    saw = plain + 0.3 * (7 - np.arange(32) % 8) / 8
    spike = plain.copy()
    spike[20] += 1.0
    out = run(Oscillation(), np.stack((plain, saw, spike), axis=1))[-1]
    assert out.sawtooth[1] > 0.5
    assert out.num_teeth.tolist() == [0, 3, 1]
    assert out.sawtooth[0] < 0


def test_an_alternating_series_is_the_extreme() -> None:
    out = run(Oscillation(), [1.0, 2.0] * 16)[-1]
    assert (out.turns[0], out.autocorrelation[0]) == pytest.approx((1.0, -1.0))


@pytest.mark.parametrize("wrong", [{"min_values": 3}, {"window": 7}])
def test_settings_outside_their_range_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="Oscillation"):
        Oscillation(**wrong)
