from collections import deque

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sonde.signals import windows

values = st.lists(st.floats(-1e6, 1e6) | st.sampled_from([np.nan, np.inf, -np.inf]), max_size=30)


@given(values, st.integers(1, 8))
def test_a_window_holds_the_last_finite_values_in_the_order_of_time(series: list[float], size: int) -> None:
    expected: deque[float] = deque(maxlen=size)
    window = windows.empty(1, size)
    for x in series:
        window = windows.slide(window, np.array([x]))
        if np.isfinite(x):
            expected.append(x)
    assert window[0, size - len(expected) :].tolist() == list(expected)
    assert np.isnan(window[0, : size - len(expected)]).all()


def test_sliding_leaves_the_old_window_as_it_was() -> None:
    old = windows.empty(2, 3)
    windows.slide(old, np.array([1.0, np.nan]))
    assert np.isnan(old).all()
