import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sonde.signals.medians import NORMAL_FROM_MAD, median, middle, spread

rows = arrays(
    np.float64, st.tuples(st.integers(1, 5), st.integers(1, 12)), elements=st.floats(-1e9, 1e9) | st.just(np.nan)
)


@given(rows)
def test_it_is_numpys_median_of_what_is_not_nan(table: np.ndarray) -> None:
    for row, found in zip(table, median(table), strict=True):
        seen = row[~np.isnan(row)]
        expected = np.median(seen) if len(seen) else np.nan
        assert found == pytest.approx(expected, rel=1e-12, nan_ok=True)


def test_the_scale_of_normal_noise_is_its_standard_deviation() -> None:
    noise = np.random.default_rng(0).normal(3.0, 2.0, size=(1, 100_000))
    found = spread(noise)
    assert found.median[0] == pytest.approx(3.0, abs=0.05)
    assert NORMAL_FROM_MAD * found.mad[0] == pytest.approx(2.0, rel=0.02)


@given(st.lists(st.floats(-1e9, 1e9) | st.just(np.nan), max_size=9))
def test_of_plain_numbers_it_is_numpys_median(values: list[float]) -> None:
    expected = np.median(values) if values else np.nan
    assert middle(values) == pytest.approx(expected, rel=1e-12, nan_ok=True)
