import numpy as np
import pytest

from sonde.signals.since_first import SinceFirst


def test_values_are_told_against_the_first_that_is_finite_and_above_zero() -> None:
    rows = np.array([[0.0, np.nan, 4.0], [2.0, np.inf, 0.0], [3.0, 5.0, 6.0]])
    since = SinceFirst()
    state, found = since.init(3), []
    for row in rows:
        state, ratio = since.step(state, row)
        found.append(ratio)
    np.testing.assert_array_equal(found, [[np.nan, np.nan, 1.0], [1.0, np.nan, 0.0], [1.5, 1.0, 1.5]])


def test_what_is_too_small_is_no_beginning() -> None:
    since = SinceFirst(least=1.0)
    state, _ = since.step(since.init(1), np.array([1.0]))
    state, _ = since.step(state, np.array([2.0]))
    assert since.step(state, np.array([5.0]))[1].tolist() == [2.5]
    with pytest.raises(ValueError, match=r"`SinceFirst\(least=...\)` must be at least 0, got -1"):
        SinceFirst(least=-1)
