"""What follows from a row, against plain numpy on the values."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sonde.kernels import columns, tensor_stats


@given(
    values=st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=50),
    others=st.lists(st.floats(-(2.0**100), 2.0**100, width=32), max_size=50),
)
def test_derived_quantities_are_those_of_the_values(values: list[float], others: list[float]) -> None:
    rows = tensor_stats([torch.tensor(values), torch.tensor(others)]).rows.numpy()
    x, y = np.array(values), np.array(others)
    assert columns.norm(rows)[0] == pytest.approx(np.linalg.norm(x), rel=1e-5)
    assert columns.rms(rows)[0] == pytest.approx(np.sqrt(np.mean(x**2)), rel=1e-5)
    assert columns.std(rows)[0] == pytest.approx(np.std(x), rel=1e-5, abs=1e-7 * np.abs(x).max())
    assert columns.absmax(rows).tolist() == [np.abs(x).max(), np.abs(y).max(initial=0)]
    assert columns.zero_fraction(rows)[0] == np.mean(x == 0)


def test_a_norm_with_a_nonfinite_value_is_nan_and_the_finite_one_has_its_own_name() -> None:
    rows = tensor_stats([torch.tensor([3.0, float("inf"), 4.0]), torch.tensor([1.0])]).rows.numpy()
    assert np.isnan(columns.norm(rows)).tolist() == [True, False]
    assert np.isnan(columns.rms(rows)).tolist() == [True, False]
    assert columns.finite_norm(rows).tolist() == [5.0, 1.0]
    assert columns.zero_fraction(rows).tolist() == [0.0, 0.0]


def test_an_empty_tensor_has_a_norm_of_zero_and_no_averages() -> None:
    rows = tensor_stats([torch.empty(0)]).rows.numpy()
    assert columns.norm(rows).tolist() == columns.absmax(rows).tolist() == [0.0]
    assert np.isnan([columns.rms(rows), columns.std(rows), columns.zero_fraction(rows)]).all()
