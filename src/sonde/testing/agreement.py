"""Whether two records say the same, and whether a zoom says what its series says."""

import numpy as np
import numpy.typing as npt

from sonde.core.frames import Float32
from sonde.core.records import Record, Series, Window

# A bucket's mean is summed up from float32 means of smaller ones.
_MEAN_ERROR = 4 * np.finfo(np.float32).eps
_SMALLEST = np.finfo(np.float32).smallest_subnormal


def bits(values: Float32) -> npt.NDArray[np.uint32]:
    """The bits of numbers: NaNs of one payload are equal, 0.0 and -0.0 are not."""
    return np.ascontiguousarray(values, np.float32).view(np.uint32)


def assert_series_agree(got: Series, expected: Series, what: str = "series") -> None:
    """The same steps, values and times, bit for bit."""
    np.testing.assert_array_equal(got.step, expected.step, err_msg=f"{what}: steps")
    np.testing.assert_array_equal(bits(got.value), bits(expected.value), err_msg=f"{what}: values")
    np.testing.assert_array_equal(got.time, expected.time, err_msg=f"{what}: times")
    kinds = [str(part.dtype) for part in got]
    assert kinds == ["int64", "float32", "float64"], f"{what}: has {kinds}"


def assert_window_sums_up(window: Window, series: Series, points: int) -> None:
    """A window's buckets are the series' points, each once and in order, summed up rightly.

    Minima, maxima and counts must be exact, means good to float32; there are at most `points` buckets.
    """
    size = len(series.step)
    count = window.finite + window.nonfinite
    assert len(window.step) <= points, f"{len(window.step)} buckets, {points} were asked for"
    assert all(len(part) == len(window.step) for part in window), "the parts of a window are of one length"
    assert (count > 0).all(), "a bucket is empty"
    assert count.sum() == size, f"the buckets have {count.sum()} values, the series has {size}"
    ends = np.cumsum(count)
    for i, (first, end) in enumerate(zip(ends - count, ends, strict=True)):
        values = series.value[first:end].astype(np.float64)
        finite = values[np.isfinite(values)]
        where = f"bucket {i}, values {first} to {end}"
        assert window.finite[i] == len(finite), f"{where}: {window.finite[i]} finite, not {len(finite)}"
        assert window.step[i] <= series.step[first], f"{where}: begins behind its first value"
        assert first == 0 or window.step[i] >= series.step[first - 1], f"{where}: begins before the last one ended"
        if len(finite):
            assert window.min[i] == finite.min(), f"{where}: minimum {window.min[i]}, not {finite.min()}"
            assert window.max[i] == finite.max(), f"{where}: maximum {window.max[i]}, not {finite.max()}"
            error = abs(float(window.mean[i]) - finite.mean())
            room = _MEAN_ERROR * np.abs(finite).max() + 2 * _SMALLEST
            assert error <= room, f"{where}: mean {window.mean[i]}, not {finite.mean()}"
        else:
            assert np.isnan([window.min[i], window.mean[i], window.max[i]]).all(), f"{where}: numbers of nothing"


def assert_records_agree(got: Record, expected: Record) -> None:
    """Two records of one run say the same: tags, every series on every line, newest points, windows and events."""
    assert got.tags() == expected.tags()
    assert list(got.branches) == list(expected.branches)
    for tag in expected.tags():
        for branch in (None, *range(len(expected.branches))):
            what = f"{tag} on branch {branch}"
            assert_series_agree(got.series(tag, branch=branch), expected.series(tag, branch=branch), what)
        series = expected.series(tag)
        for points in (1, 3, 1000):
            assert_window_sums_up(got.window(tag, points=points), series, points)
    newest, wanted = got.last(), expected.last()
    assert newest.keys() == wanted.keys()
    for tag, point in wanted.items():
        np.testing.assert_equal(newest[tag], point, err_msg=f"the newest point of {tag}")
    happened = [(event.kind, event.step, event.data) for event in got.events()]
    assert happened == [(event.kind, event.step, event.data) for event in expected.events()]
