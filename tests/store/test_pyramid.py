"""The pyramid of a block, against a loop over buckets in float64."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sonde.core.frames import MISSING, Float32, is_missing
from sonde.core.records import Series
from sonde.store.pyramid import BASE_ROWS, FACTOR, Pyramid, level_sizes, write
from sonde.store.zoom import pick
from sonde.testing import assert_window_sums_up

HUGE = np.float32(3.4e38)


def block(rows: int, columns: int, seed: int, holes: float, odd: float, scale: float) -> Float32:
    """Random columns with missing and non-finite values; the last one has neither, nor a finite value, in turn."""
    rng = np.random.default_rng(seed)
    values = (rng.uniform(-1, 1, (columns, rows)) * scale).astype(np.float32)
    values[rng.random(values.shape) < odd] = np.nan
    values[rng.random(values.shape) < odd] = np.inf
    values[rng.random(values.shape) < odd / 2] = -np.inf
    values[rng.random(values.shape) < holes] = MISSING
    if seed % 3 == 0:
        values[-1] = np.nan
    elif seed % 3 == 1:
        values[-1] = MISSING
    return values


@settings(deadline=None, max_examples=150)
@given(
    rows=st.integers(1, 5000),
    columns=st.integers(1, 4),
    seed=st.integers(0, 1000),
    holes=st.sampled_from([0.0, 0.02, 0.9, 1.0]),
    odd=st.sampled_from([0.0, 0.01, 0.5]),
    scale=st.sampled_from([1.0, 1e-42, 1e38, 3.4e38]),
)
@example(rows=64, columns=1, seed=2, holes=0.0, odd=0.02, scale=3.4e38)
@example(rows=4097, columns=2, seed=2, holes=0.0, odd=0.0, scale=3.4e38)
@example(rows=40_001, columns=2, seed=2, holes=0.02, odd=0.01, scale=1.0)  # more than is looked at in one piece
@example(rows=40_001, columns=2, seed=2, holes=0.0, odd=0.0, scale=1.0)
@example(rows=3_000, columns=17, seed=1, holes=0.02, odd=0.0, scale=1.0)
def test_every_level_of_every_column_sums_up_its_rows(
    tmp_path_factory: pytest.TempPathFactory,
    rows: int,
    columns: int,
    seed: int,
    holes: float,
    odd: float,
    scale: float,
) -> None:
    path = tmp_path_factory.mktemp("pyramid") / "block"
    values = block(rows, columns, seed, holes, odd, scale)
    step, time = np.arange(rows) * 3, np.arange(rows) / 2
    write(path, step, time, values)
    with Pyramid(path) as pyramid:
        assert (pyramid.num_columns, pyramid.rows) == (columns, rows)
        for column in range(columns):
            measured = ~is_missing(values[column])
            series = Series(step[measured], values[column][measured], time[measured])
            for number, size in enumerate(level_sizes(rows)):
                window, bucket = pyramid.level(column, BASE_ROWS * FACTOR**number)
                assert bucket == BASE_ROWS * FACTOR**number
                assert np.array_equal(window.step, step[::bucket])
                assert len(window.min) == size
                full = np.flatnonzero(window.finite + window.nonfinite)
                assert_window_sums_up(pick(window, full), series, size)
                counted = [int(measured[i : i + bucket].sum()) for i in range(0, rows, bucket)]
                assert (window.finite + window.nonfinite).tolist() == counted


@settings(deadline=None, max_examples=40)
@given(rows=st.integers(1, 300), seed=st.integers(0, 1000), holes=st.sampled_from([0.0, 0.5, 0.99, 1.0]))
def test_the_newest_point_is_the_last_measured_one(
    tmp_path_factory: pytest.TempPathFactory, rows: int, seed: int, holes: float
) -> None:
    path = tmp_path_factory.mktemp("pyramid") / "block"
    values = block(rows, 3, seed, holes, 0.2, 1.0)
    step, time = np.arange(rows) * 7 - 5, np.arange(rows) / 2
    write(path, step, time, values)
    with Pyramid(path) as pyramid:
        newest = pyramid.newest()
    for column in range(3):
        measured = np.flatnonzero(~is_missing(values[column]))
        assert bool(is_missing(newest.value[column])) == (len(measured) == 0)
        if len(measured):
            at = measured[-1]
            assert (newest.step[column], newest.time[column]) == (step[at], time[at])
            assert newest.value[column].tobytes() == values[column, at].tobytes()


def test_the_mean_of_huge_values_does_not_overflow(tmp_path: Path) -> None:
    values = np.full((2, 200), HUGE)
    values[0, 0] = np.nan
    write(tmp_path / "block", np.arange(200), np.zeros(200), values)
    with Pyramid(tmp_path / "block") as pyramid:
        for column in range(2):
            window, _ = pyramid.level(column, 1 << 20)
            assert window.mean.tolist() == [HUGE]


@pytest.mark.parametrize(
    ("max_rows", "bucket"), [(1, 64), (64, 64), (511, 64), (512, 512), (4095, 512), (4096, 4096), (1 << 40, 4096)]
)
def test_the_coarsest_level_that_is_fine_enough_is_read(tmp_path: Path, max_rows: int, bucket: int) -> None:
    write(tmp_path / "block", np.arange(4000), np.zeros(4000), np.ones((1, 4000), np.float32))
    with Pyramid(tmp_path / "block") as pyramid:
        window, got = pyramid.level(0, max_rows)
    assert got == bucket
    assert window.finite.sum() == 4000


def damaged(content: bytes) -> list[bytes]:
    half = len(content) // 2
    return [b"", content[:10], content[:half], content[:-1], content + b"\0", b"PAR1" + content[4:], b"\0" * half]


def test_a_torn_or_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "block"
    values: npt.NDArray[np.float32] = np.ones((3, 500), np.float32)
    write(path, np.arange(500), np.zeros(500), values)
    content = path.read_bytes()
    for wrong in damaged(content):
        path.write_bytes(wrong)
        with pytest.raises(ValueError, match="torn"):
            Pyramid(path)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        Pyramid(path)
