import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.signals.drift import Drift

from .streams import run

gains = st.lists(st.floats(0.1, 3.0) | st.just(np.nan), min_size=1, max_size=40)


@given(gains)
def test_it_is_the_slow_definition(series: list[float]) -> None:
    seen: list[float] = []
    for x, out in zip(series, run(Drift(), series), strict=True):
        seen += [x] * bool(np.isfinite(x))
        rises = 0
        while rises + 1 < len(seen) and seen[-rises - 1] > seen[-rises - 2]:
            rises += 1
        assert out.num_rises[0] == rises
        if len(seen) < 3:
            assert np.isnan(out.rise[0])
            assert not out.drifting[0]
        else:
            rise = seen[-1] / seen[-5:][0] - 1
            assert out.rise[0] == pytest.approx(rise)
            climb = seen[-1] - min(seen[-10:])
            if abs(rise - 0.1) > 1e-5 and abs(climb - 0.1) > 1e-5:
                assert out.drifting[0] == (rise > 0.1 and rises >= 3 and climb > 0.1)


@given(st.lists(st.floats(-0.05, 0.05), min_size=1, max_size=60), st.floats(0.2, 2.0))
def test_natural_variation_about_any_level_is_never_drift(wobble: list[float], level: float) -> None:
    assert not any(out.drifting[0] for out in run(Drift(), [level + w for w in wobble]))


def test_a_jump_at_the_border_of_two_epochs_is_not_drift() -> None:
    assert not any(out.drifting[0] for out in run(Drift(), [1.0] * 8 + [1.3] * 8))


def test_a_steady_rise_is_drift_from_its_third_rise_on() -> None:
    outs = run(Drift(), [1.0, 1.0, 1.0, 1.06, 1.12, 1.18])
    assert [bool(out.drifting[0]) for out in outs] == [False] * 5 + [True]


def test_every_figure_can_be_set() -> None:
    series = [1.0, 1.02, 1.05]
    assert not run(Drift(), series)[-1].drifting[0]
    assert run(Drift(threshold=0.04, min_rises=2, variation=0.01), series)[-1].drifting[0]


@pytest.mark.parametrize(
    "wrong",
    [{"threshold": 0.0}, {"window": 11}, {"min_values": 6}, {"min_values": 1}, {"min_rises": 0}, {"variation": -0.1}],
)
def test_settings_outside_their_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="Drift"):
        Drift(**wrong)  # type: ignore[arg-type]
