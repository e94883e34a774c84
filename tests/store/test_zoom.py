from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.core.frames import Float32
from sonde.core.records import Series, Window
from sonde.store.zoom import join, pick, zoom
from sonde.testing import assert_window_sums_up


def odd_values(size: int, seed: int) -> Float32:
    rng = np.random.default_rng(seed)
    values = (rng.normal(size=size) * 10.0 ** rng.integers(-40, 38, size)).astype(np.float32)
    values[rng.random(size) < 0.2] = np.nan
    values[rng.random(size) < 0.1] = np.inf
    return values


def buckets(values: Float32, sizes: list[int]) -> Window:
    """Some values in buckets of the given sizes, summed up by a loop."""
    rows = []
    at = 0
    for size in sizes:
        part = values[at : at + size].astype(np.float64)
        finite = part[np.isfinite(part)]
        low, mean, high = (finite.min(), finite.mean(), finite.max()) if len(finite) else (np.nan, np.nan, np.nan)
        rows.append((at, low, mean, high, len(finite), size - len(finite)))
        at += size
    kinds = (np.int64, np.float32, np.float32, np.float32, np.int64, np.int64)
    return Window(*(np.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds)))


def series_of(values: Float32) -> Series:
    return Series(np.arange(len(values)), values, np.zeros(len(values)))


@settings(deadline=None, max_examples=100)
@given(
    sizes=st.lists(st.sampled_from([1, 1, 1, 2, 8, 64, 500]), max_size=150),
    points=st.integers(1, 200),
    seed=st.integers(0, 1000),
)
def test_zooming_out_sums_up_every_value_once(sizes: list[int], points: int, seed: int) -> None:
    values = odd_values(sum(sizes), seed)
    assert_window_sums_up(zoom(buckets(values, sizes), points), series_of(values), points)


@pytest.mark.parametrize("points", [1, 2, 7, 50, 99])
def test_buckets_have_about_equal_numbers_of_values(points: int) -> None:
    window = zoom(buckets(np.ones(100, np.float32), [1] * 100), points)
    assert len(window.step) == points
    assert window.finite.max() - window.finite.min() <= 1


def test_what_fits_stays_as_it_is() -> None:
    window = buckets(odd_values(10, 0), [1] * 10)
    assert zoom(window, 10) is window


def test_a_bucket_of_nothing_finite_has_no_numbers() -> None:
    values = np.array([np.nan, np.inf, 1.0, 2.0], np.float32)
    window = zoom(buckets(values, [1] * 4), 2)
    assert window.finite.tolist() == [0, 2]
    assert window.nonfinite.tolist() == [2, 0]
    assert np.isnan([window.min[0], window.mean[0], window.max[0]]).all()
    assert (window.min[1], window.mean[1], window.max[1]) == (1, 1.5, 2)


@pytest.mark.parametrize("cuts", [[], [0], [50], [10, 20], [0, 100], [30, 30, 99]])
def test_joined_pieces_are_the_whole(cuts: list[int]) -> None:
    whole = buckets(odd_values(100, 1), [1] * 100)
    edges = [0, *cuts, 100]
    pieces = [pick(whole, np.arange(a, b)) for a, b in pairwise(edges)]
    joined = join(pieces)
    for i in range(6):
        np.testing.assert_array_equal(joined[i], whole[i], strict=True)


def test_nothing_joined_is_an_empty_window() -> None:
    window = zoom(join([]), 5)
    assert [len(part) for part in window] == [0] * 6
    assert [str(part.dtype) for part in window] == ["int64", "float32", "float32", "float32", "int64", "int64"]
