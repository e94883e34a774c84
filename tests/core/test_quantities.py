"""Numbers in messages say what is known, and nothing that has to be decoded."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.core.quantities import age, amount, count, duration, moment, number, quantity, share, sized


@given(st.floats(-1e300, 1e300))
def test_an_amount_is_the_number_to_three_digits(value: float) -> None:
    assert float(amount(value).replace(",", "")) == pytest.approx(value, rel=0.0051, abs=1e-300)


@given(st.floats(1e-4, 1e8))
def test_ordinary_numbers_are_written_out(value: float) -> None:
    assert "e" not in amount(value)


def test_what_is_no_number_has_its_name() -> None:
    assert [amount(value) for value in (math.nan, math.inf, -math.inf)] == ["NaN", "infinity", "-infinity"]
    assert share(math.nan) == "NaN"
    assert number(-0.0) == "0"


def test_shares_and_counts() -> None:
    assert [share(value) for value in (0.0, 0.00123, 0.25, 2.5)] == ["0%", "0.12%", "25%", "250%"]
    assert [count(num, "batch", "batches") for num in (0, 1, 2)] == ["0 batches", "1 batch", "2 batches"]


@pytest.mark.parametrize("num", [math.nan, math.inf, -math.inf])
def test_a_count_that_is_no_number_is_not_known(num: float) -> None:
    assert count(num, "batch", "batches") == "an unknown number of batches"


@given(st.floats(1e-9, 1e300), st.integers(1, 8))
def test_a_number_has_the_digits_that_were_asked_for(value: float, digits: int) -> None:
    text = number(value, digits)
    assert float(text.replace(",", "")) == float(f"{value:.{digits}g}")
    assert ("e" in text) == (not 1e-4 <= float(f"{value:.{digits}g}") < 1e9)


def test_large_shares_and_sizes_are_written_out() -> None:
    assert [share(value) for value in (1.0, 12.3, 1234.5)] == ["100%", "1,200%", "120,000%"]
    assert [sized(value) for value in (0.0, 1023.5 * 2**20, 3e15)] == ["0 bytes", "1,020 MiB", "2,730 TiB"]


@given(st.floats(0, 1e9))
def test_a_duration_is_never_off_by_more_than_its_last_digit(seconds: float) -> None:
    units = {"µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
    words = duration(seconds).split()
    said = [(float(num.replace(",", "")), units[unit]) for num, unit in zip(words[::2], words[1::2], strict=True)]
    room = max(said[-1][1] if seconds >= 60 else 0.006 * seconds, 1e-9)
    if len(said) == 1 and seconds >= 60:  # what is not said is a zero in the second unit, then anything below it
        room = said[0][1] / 24
    assert sum(num * unit for num, unit in said) == pytest.approx(seconds, abs=room)


def test_times_of_damaged_files_are_told() -> None:
    assert moment(1e9) == "2001-09-09 01:46:40 UTC"
    assert {moment(time) for time in (math.nan, -1.0, 1e12, math.inf)} == {"at no time that a clock can show"}
    assert [age(seconds) for seconds in (0.5, 90_061)] == ["now", "1 d ago"]


def test_what_is_no_number_has_no_unit() -> None:
    assert {quantity(math.nan, unit) for unit in ("share", "change", "s", "bytes", "", "jumps")} == {"NaN"}
