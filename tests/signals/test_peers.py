import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.signals.peers import against_peers

values = st.lists(st.floats(-1e3, 1e3) | st.sampled_from([np.nan, np.inf]), min_size=1, max_size=30)


@given(values)
def test_it_is_the_robust_score_over_the_finite_tags(row: list[float]) -> None:
    found = against_peers(np.array(row))
    seen = np.array([x for x in row if np.isfinite(x)])
    if len(seen) < 5:
        assert np.isnan([found.median, found.scale, *found.z]).all()
        return
    median = np.median(seen)
    scale = max(1.4826 * np.median(np.abs(seen - median)), 0.05)
    expected = [(x - median) / scale if np.isfinite(x) else np.nan for x in row]
    assert found.z == pytest.approx(expected, rel=1e-6, abs=1e-9, nan_ok=True)


def test_the_one_layer_that_does_not_learn_stands_out_and_alike_layers_do_not() -> None:
    norms = np.full(12, 0.3)
    assert np.abs(against_peers(np.log(norms * np.linspace(0.97, 1.03, 12))).z).max() < 1
    norms[7] = 1e-7
    z = against_peers(np.log(norms)).z
    assert z.argmin() == 7
    assert z[7] < -100
    assert np.abs(np.delete(z, 7)).max() < 1e-9


def test_equal_zeros_without_a_floor_are_equal() -> None:
    assert against_peers(np.zeros(6), floor=0.0).z.tolist() == [0.0] * 6


@pytest.mark.parametrize("wrong", [{"min_peers": 1}, {"floor": -1.0}])
def test_settings_outside_their_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="against_peers"):
        against_peers(np.zeros(6), **wrong)  # type: ignore[arg-type]
