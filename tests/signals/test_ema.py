import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.signals.ema import Ema, EmaState

values = st.lists(st.floats(-1e6, 1e6) | st.sampled_from([np.nan, np.inf]), min_size=1, max_size=60)


def smooth(ema: Ema, series: list[float]) -> list[float]:
    state, out = ema.init(1), []
    for x in series:
        state, y = ema.step(state, np.array([x]))
        out.append(float(y[0]))
    return out


@given(values, st.sampled_from([0.95, 0.99, 0.999]))
def test_it_is_the_normalised_weighted_mean_of_the_finite_values(series: list[float], decay: float) -> None:
    seen = np.array([x for x in series if np.isfinite(x)])
    weights = decay ** np.arange(len(seen))[::-1]
    expected = (weights * seen).sum() / weights.sum() if len(seen) else np.nan
    assert smooth(Ema(decay=decay), series)[-1] == pytest.approx(expected, rel=1e-6, abs=1e-6, nan_ok=True)


def test_on_white_noise_less_than_one_per_cent_of_the_variance_is_left() -> None:
    noise = np.random.default_rng(3).normal(size=20_000)
    left = np.var(smooth(Ema(decay=0.99), noise.tolist())[1000:])
    assert 0.003 < left < 0.01


def test_a_vector_of_tags_is_a_loop_over_them() -> None:
    rng = np.random.default_rng(0)
    series = rng.normal(size=(50, 7))
    series[rng.random(series.shape) < 0.3] = np.nan
    ema = Ema()
    state = ema.init(7)
    for row in series:
        state, out = ema.step(state, row)
    assert out.tolist() == pytest.approx([smooth(ema, series[:, i].tolist())[-1] for i in range(7)])


def test_a_state_that_went_through_plain_lists_goes_on_without_a_jump() -> None:
    ema = Ema()
    state = ema.init(2)
    for row in np.random.default_rng(1).normal(size=(20, 2)):
        state, _ = ema.step(state, row)
    raw, count = ([*map(float, state.raw)], [*map(int, state.num_values)])
    restored = EmaState(np.array(raw), np.array(count))
    _, expected = ema.step(state, np.array([1.0, 2.0]))
    _, out = ema.step(restored, np.array([1.0, 2.0]))
    assert np.array_equal(out, expected)


@pytest.mark.parametrize("decay", [0.0, 0.9, 1.0, 2.0, float("nan")])
def test_a_decay_outside_its_range_is_refused(decay: float) -> None:
    with pytest.raises(ValueError, match="decay"):
        Ema(decay=decay)
