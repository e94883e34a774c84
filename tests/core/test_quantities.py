"""Numbers in messages say what is known, and nothing that has to be decoded."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.core.quantities import amount, count, share


@given(st.floats(-1e300, 1e300))
def test_an_amount_is_the_number_to_three_digits(value: float) -> None:
    assert float(amount(value).replace(",", "")) == pytest.approx(value, rel=0.0051, abs=1e-300)


@given(st.floats(1e-4, 1e8))
def test_ordinary_numbers_are_written_out(value: float) -> None:
    assert "e" not in amount(value)


def test_what_is_no_number_has_its_name() -> None:
    assert [amount(value) for value in (math.nan, math.inf, -math.inf)] == ["NaN", "infinity", "-infinity"]
    assert share(math.nan) == "NaN"


def test_shares_and_counts() -> None:
    assert [share(value) for value in (0.0, 0.00123, 0.25, 2.5)] == ["0%", "0.12%", "25%", "250%"]
    assert [count(num, "batch", "batches") for num in (0, 1, 2)] == ["0 batches", "1 batch", "2 batches"]


@pytest.mark.parametrize("num", [math.nan, math.inf, -math.inf])
def test_a_count_that_is_no_number_is_not_known(num: float) -> None:
    assert count(num, "batch", "batches") == "an unknown number of batches"
