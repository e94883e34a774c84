import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.signals.cusum import Cusum, threshold_for

from .streams import run

values = st.lists(st.floats(-10, 10) | st.just(np.nan), min_size=1, max_size=60)


@given(values, st.sampled_from([np.inf, 2.0]))
def test_it_is_the_textbooks_recursion_that_starts_again_after_an_alarm(series: list[float], clip: float) -> None:
    up = down = 0.0
    for z, out in zip(series, run(Cusum(threshold=4.0, slack=0.5, clip=clip), series), strict=True):
        if np.isfinite(z):
            z = min(max(z, -clip), clip)
            up, down = max(0.0, up + (z - 0.5)), max(0.0, down + (-z - 0.5))
        assert (out.up[0], out.down[0]) == pytest.approx((up, down))
        assert (out.rose[0], out.fell[0]) == (up > 4.0, down > 4.0)
        up, down = (0.0 if up > 4.0 else up), (0.0 if down > 4.0 else down)


@pytest.mark.parametrize(("false_alarms", "slack"), [(20.0, 0.5), (4.0, 0.5), (10.0, 1.0)])
def test_the_threshold_gives_the_false_alarms_that_were_asked_for(false_alarms: float, slack: float) -> None:
    num_steps, num_series = 5000, 300
    h = threshold_for(false_alarms, num_steps, slack=slack)
    rng = np.random.default_rng(0)
    cusum = Cusum(threshold=h, slack=slack)
    state, alarms = cusum.init(num_series), 0
    for _ in range(num_steps):
        state, out = cusum.step(state, rng.normal(size=num_series))
        alarms += int(out.rose.sum() + out.fell.sum())
    assert alarms / num_series == pytest.approx(false_alarms, rel=0.12)


def test_a_shift_by_one_standard_deviation_is_found_soon() -> None:
    h = threshold_for(0.01, 100_000)
    noise = np.random.default_rng(1).normal(size=(200, 100)) + 1.0
    rose = np.array([out.rose for out in run(Cusum(threshold=h), noise)])
    assert rose.any(axis=0).all()
    assert rose.argmax(axis=0).mean() == pytest.approx((h + 1.2) / 0.5, rel=0.1)


def test_with_a_clip_no_single_outlier_is_an_alarm() -> None:
    assert not run(Cusum(threshold=5.0, clip=4.0), [1e9])[-1].rose[0]
    assert run(Cusum(threshold=5.0), [1e9])[-1].rose[0]


@pytest.mark.parametrize("wrong", [(0, 10), (10, 10), (-1, 10), (float("nan"), 10)])
def test_a_budget_that_means_nothing_is_refused(wrong: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="false_alarms"):
        threshold_for(*wrong)


@pytest.mark.parametrize("wrong", [{"threshold": 0.0}, {"threshold": 5.0, "slack": -1.0}, {"threshold": float("nan")}])
def test_settings_outside_their_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="Cusum"):
        Cusum(**wrong)
