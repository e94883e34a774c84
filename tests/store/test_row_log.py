"""The live tail of a table, against a writer that follows the description of the format byte by byte."""

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.core.frames import Float32
from sonde.store.row_log import HEADER_BYTES, RowLog


def as_described(values: Float32, *, number: int = 0, version: int = 1) -> bytes:
    """A log with the given rows: step i, time i / 4."""
    head = struct.pack("<8sIIQ", b"SONDEROW", version, values.shape[1], number)
    start = zlib.crc32(head)
    out = (head + struct.pack("<I", start)).ljust(64, b"\0")
    for i, row in enumerate(values):
        body = struct.pack("<qd", i, i / 4) + row.astype("<f4").tobytes()
        out += body + struct.pack("<I", zlib.crc32(body, start))
    return out


def some_values(rows: int, width: int, seed: int = 0) -> Float32:
    return np.random.default_rng(seed).integers(0, 1 << 32, (rows, width), np.uint32).view(np.float32)


def same(a: Float32, b: Float32) -> bool:
    return np.array_equal(np.ascontiguousarray(a).view(np.uint32), np.ascontiguousarray(b).view(np.uint32))


@settings(deadline=None, max_examples=40)
@given(rows=st.integers(0, 700), width=st.integers(1, 40), seed=st.integers(0, 99), check_all=st.booleans())
def test_a_log_written_as_described_reads_back_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, rows: int, width: int, seed: int, check_all: bool
) -> None:
    path = tmp_path_factory.mktemp("log") / "rows"
    values = some_values(rows, width, seed)
    path.write_bytes(as_described(values, number=seed))
    with RowLog(path, check_all=check_all) as log:
        assert (len(log), log.width) == (rows, width)
        assert np.array_equal(log.steps(), np.arange(rows))
        assert np.array_equal(log.times(), np.arange(rows) / 4)
        assert same(log.values(0, width), values)


def test_a_log_torn_at_any_byte_has_the_whole_rows_before_it(tmp_path: Path) -> None:
    values = some_values(6, 3)
    whole = as_described(values)
    stride = (len(whole) - HEADER_BYTES) // 6
    path = tmp_path / "rows"
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        with RowLog(path) as log:
            rows = max(0, size - HEADER_BYTES) // stride
            assert log.steps().tolist() == list(range(rows))
            assert log.times().tolist() == [i / 4 for i in range(rows)]
            assert same(log.values(0, 3), values[:rows]) if size >= HEADER_BYTES else log.width == 0


def test_a_flipped_byte_costs_its_own_row_and_no_other(tmp_path: Path) -> None:
    values = some_values(5, 2)
    whole = as_described(values)
    stride = (len(whole) - HEADER_BYTES) // 5
    path = tmp_path / "rows"
    for place in range(HEADER_BYTES, len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 0x10
        path.write_bytes(damaged)
        lost = (place - HEADER_BYTES) // stride
        rest = [i for i in range(5) if i != lost]
        with RowLog(path) as log:
            assert log.steps().tolist() == rest
            assert same(log.values(0, 2), values[rest])


def test_a_flipped_byte_of_the_header_makes_the_log_read_as_empty(tmp_path: Path) -> None:
    whole = as_described(some_values(3, 2))
    path = tmp_path / "rows"
    for place in range(HEADER_BYTES):
        damaged = bytearray(whole)
        damaged[place] ^= 0x01
        path.write_bytes(damaged)
        with RowLog(path) as log:
            assert (len(log), log.width) == (0, 0)


@pytest.mark.parametrize(
    "content",
    [b"", b"SONDEROW", b"PAR1" * 40, b"\0" * 1000, as_described(some_values(4, 2), version=2)],
    ids=["empty", "torn header", "Parquet", "zeros of a crashed disk", "newer version"],
)
def test_what_is_not_a_log_reads_as_empty(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rows"
    path.write_bytes(content)
    with RowLog(path, check_all=True) as log:
        assert len(log) == 0
        assert log.steps().shape == log.times().shape == (0,)
        assert log.values(0, 5).shape == (0, 0)


def test_a_row_that_strayed_from_another_log_does_not_count(tmp_path: Path) -> None:
    values = some_values(3, 2)
    ours, other = as_described(values, number=4), as_described(values, number=5)
    stride = (len(ours) - HEADER_BYTES) // 3
    path = tmp_path / "rows"
    path.write_bytes(ours[: HEADER_BYTES + stride] + other[HEADER_BYTES + stride :])
    with RowLog(path) as log:
        assert log.steps().tolist() == [0]


def test_old_rows_are_checked_where_another_process_wrote_them(tmp_path: Path) -> None:
    damaged = bytearray(as_described(some_values(600, 1)))
    damaged[HEADER_BYTES + 3] ^= 0xFF
    path = tmp_path / "rows"
    path.write_bytes(damaged)
    with RowLog(path, check_all=True) as log:
        assert log.steps().tolist() == list(range(1, 600))
    with RowLog(path) as log:
        assert len(log) == 600


def test_narrow_reads_are_slices_of_the_whole(tmp_path: Path) -> None:
    width, rows = 3000, 40  # rows of 12 kB: few columns are read one row at a time
    values = some_values(rows, width)
    damaged = bytearray(as_described(values))
    stride = (len(damaged) - HEADER_BYTES) // rows
    damaged[HEADER_BYTES + 7 * stride + 500] ^= 1
    path = tmp_path / "rows"
    path.write_bytes(damaged)
    rest = np.delete(values, 7, axis=0)
    with RowLog(path) as log:
        for first, last in [(0, 1), (1, 4), (2999, 3000), (17, 900), (0, 3000), (2990, 5000), (3000, 3001), (5, 5)]:
            assert same(log.values(first, last), rest[:, first:last])
        assert log.steps().tolist() == [i for i in range(rows) if i != 7]


def test_rows_larger_than_any_buffer_are_read(tmp_path: Path) -> None:
    width = 2_200_000  # 8.8 MB a row
    values = some_values(3, width)
    path = tmp_path / "rows"
    path.write_bytes(as_described(values)[:-1])
    with RowLog(path) as log:
        assert log.steps().tolist() == [0, 1]
        assert same(log.values(0, width), values[:2])
        assert same(log.values(width - 2, width), values[:2, -2:])


def test_a_log_that_is_not_there_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        RowLog(tmp_path / "rows")
