import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.signals.robust_z import RobustZ

from .streams import run

values = st.lists(
    st.floats(-1000, 1000, width=32) | st.integers(0, 2).map(float) | st.just(np.nan), min_size=1, max_size=40
)


@given(values)
def test_it_is_the_modified_z_score_against_the_window_before(series: list[float]) -> None:
    past: list[float] = []
    for x, out in zip(series, run(RobustZ(window=8, min_values=3, floor=0.0), series), strict=True):
        if len(past) < 3:
            assert np.isnan([out.z[0], out.median[0], out.scale[0]]).all()
        else:
            median = np.median(past)
            deviations = np.abs(np.array(past) - median)
            scale = 1.4826 * np.median(deviations) or 1.2533 * deviations.mean()
            assert out.median[0] == pytest.approx(median)
            assert out.scale[0] == pytest.approx(scale)
            if np.isfinite(x) and scale > 0:
                assert out.z[0] == pytest.approx((x - median) / scale)
            else:
                assert np.isnan(out.z[0])
        past = (past + [x] * bool(np.isfinite(x)))[-8:]


def test_on_normal_noise_it_is_nearly_standard_normal() -> None:
    noise = np.random.default_rng(0).normal(5.0, 3.0, size=(300, 200))
    z = np.array([out.z for out in run(RobustZ(), noise)[128:]])
    assert z.std() == pytest.approx(1.0, abs=0.05)
    assert (np.abs(z) > 6).mean() < 1e-4


def test_outliers_in_the_past_do_not_hide_the_next_one() -> None:
    noise = np.random.default_rng(1).normal(size=129)
    noise[:120:3] += 1000.0
    noise[-1] = 50.0
    assert run(RobustZ(), noise)[-1].z[0] > 10


def test_a_series_that_hardly_moves_is_judged_by_the_floor() -> None:
    out = run(RobustZ(floor=1e-3), [2.0] * 30 + [2.001])[-1]
    assert out.scale[0] == pytest.approx(0.002)
    assert out.z[0] == pytest.approx(0.5)


def test_it_abstains_where_all_the_past_is_zero() -> None:
    assert np.isnan(run(RobustZ(), [0.0] * 30 + [1.0])[-1].z[0])


@pytest.mark.parametrize("wrong", [{"min_values": 1}, {"window": 10}, {"floor": -1.0}, {"floor": float("nan")}])
def test_settings_outside_their_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="RobustZ"):
        RobustZ(**wrong)  # type: ignore[arg-type]
