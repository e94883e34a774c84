import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.signals.clipping import Clipping

FACTORS = st.lists(st.sampled_from([1.0, 1.0, 0.5, 0.25, 1e-6, 0.999, float("nan")]), min_size=1, max_size=30)


@given(FACTORS, st.integers(1, 12))
def test_rate_and_strength_are_those_of_the_last_window(factors: list[float], window: int) -> None:
    clipping = Clipping(window=window)
    state = clipping.init(1)
    for factor in factors:
        state, out = clipping.step(state, np.array([factor]))
    known = [factor for factor in factors if factor == factor][-window:]
    cuts = [1 - factor for factor in known if factor < 1]
    assert out.rate.item() == pytest.approx(len(cuts) / len(known) if known else np.nan, nan_ok=True)
    assert out.strength.item() == pytest.approx(sum(cuts) / len(cuts) if cuts else np.nan, nan_ok=True)


def test_a_window_has_at_least_one_step() -> None:
    with pytest.raises(ValueError, match=r"`Clipping\(window=...\)` must be at least 1, got 0"):
        Clipping(window=0)
