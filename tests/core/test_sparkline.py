import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.core.sparkline import NON_FINITE, held, sparkline, spread

floats = st.lists(st.floats(width=32), max_size=50)


@given(values=floats, height=st.integers(1, 8))
def test_every_value_has_a_column_and_none_is_hidden(values: list[float], height: int) -> None:
    rows = sparkline(values, height=height)
    assert [len(row) for row in rows] == [len(values)] * height
    assert [mark == NON_FINITE for mark in rows[-1]] == [not math.isfinite(value) for value in values]
    assert " " not in rows[-1]


@given(values=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=50))
def test_higher_values_are_drawn_at_least_as_high(values: list[float]) -> None:
    (row,) = sparkline(sorted(values))
    assert list(row) == sorted(row)  # the code points of the blocks rise with their height


def test_a_flat_curve_is_drawn_in_the_middle() -> None:
    assert sparkline([2.0, 2.0], height=2) == ["  ", "██"]


@given(values=floats.filter(bool), width=st.integers(1, 60))
def test_spreading_keeps_every_value_that_is_not_finite_visible(values: list[float], width: int) -> None:
    columns = held(spread(range(0, 7 * len(values), 7), values, width=width))
    assert len(columns) == width
    assert None not in columns  # the first value is in the first column, and lasts
    assert any(column != column for column in columns) == (not all(map(math.isfinite, values)))


@pytest.mark.parametrize("width", [1, 3, 10])
def test_one_point_is_held_over_the_width(width: int) -> None:
    assert held(spread([5], [2.0], width=width)) == [2.0] * width


@given(
    values=st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=50),
    first=st.integers(0, 100),
    last=st.integers(100, 200),
    width=st.integers(1, 60),
)
def test_a_column_is_empty_where_nothing_was_measured(values: list[float], first: int, last: int, width: int) -> None:
    steps = range(80, 80 + 3 * len(values), 3)
    columns = spread(steps, values, width=width, span=(first, last))
    there = {(step - first) * width // (last - first + 1) for step in steps if first <= step <= last}
    assert [column is not None for column in columns] == [place in there for place in range(width)]


def test_values_are_drawn_between_given_ends() -> None:
    assert sparkline([0.0, 5.0, 10.0, None, math.inf], low=-10.0, high=10.0) == ["▅▆█ ×"]
    assert sparkline([1e308, -1e308], levels="_-") == ["-_"]
