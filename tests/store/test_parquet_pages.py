"""Pages of Parquet, judged by their headers."""

import io
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sonde.core.errors import FormatError
from sonde.store.parquet_pages import check_pages


def packed(path: Path, rows: int, **how: object) -> tuple[int, int]:
    """A file of zeros; where its column begins, and how many bytes it takes."""
    sink = io.BytesIO()
    table = pa.table({"a": np.zeros(rows, np.float32)})
    pq.write_table(table, sink, compression="zstd", use_dictionary=False, **how)
    path.write_bytes(sink.getvalue())
    column = pq.read_metadata(path).row_group(0).column(0)
    return column.data_page_offset, column.total_compressed_size


@pytest.mark.parametrize("how", [{}, {"data_page_version": "2.0"}, {"data_page_size": 1000, "write_statistics": False}])
def test_a_column_is_no_larger_than_its_pages_say(tmp_path: Path, how: dict[str, object]) -> None:
    start, size = packed(tmp_path / "a", 100_000, **how)
    fd = os.open(tmp_path / "a", os.O_RDONLY)
    try:
        check_pages(fd, start, size, num_values=100_000, unpacked_bytes=500_000)
        with pytest.raises(FormatError, match="more values"):
            check_pages(fd, start, size, num_values=99_999, unpacked_bytes=500_000)
        with pytest.raises(FormatError, match="more values"):
            check_pages(fd, start, size, num_values=100_000, unpacked_bytes=399_000)
        with pytest.raises(FormatError):
            check_pages(fd, start, size - 1, num_values=100_000, unpacked_bytes=500_000)
        with pytest.raises(FormatError):
            check_pages(fd, start + 1, size, num_values=100_000, unpacked_bytes=500_000)
    finally:
        os.close(fd)


def test_dictionary_pages_are_refused(tmp_path: Path) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": ["x", "y"] * 50}), sink, use_dictionary=True)
    (tmp_path / "a").write_bytes(sink.getvalue())
    column = pq.read_metadata(tmp_path / "a").row_group(0).column(0)
    fd = os.open(tmp_path / "a", os.O_RDONLY)
    try:
        with pytest.raises(FormatError, match="not one of a page of values"):
            check_pages(
                fd,
                column.dictionary_page_offset,
                column.total_compressed_size,
                num_values=1000,
                unpacked_bytes=10_000,
            )
    finally:
        os.close(fd)
