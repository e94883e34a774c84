"""Closed pieces of a table: Parquet that pandas, polars and DuckDB open without Sonde.

A segment is a folder of blocks. A block is one Parquet file of one row group: `step`, `time`, then up to 500 tags
(float32, null where nothing was measured, NaN where NaN was), zstd over byte-stream-split, with its pyramid beside it.
The longer a segment, the fewer columns a block has: about a million cells each, which bounds the memory of writing it
and the footer that reading one series parses. A segment appears by one rename, whole or not at all.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # here and not later: an ending process can import nothing any more
import pyarrow.parquet as pq

from sonde.core import strict_json
from sonde.core.errors import FormatError
from sonde.core.frames import MISSING, Float32, is_missing
from sonde.core.records import Float64, Int64
from sonde.store import pyramid
from sonde.store.breath import breathe
from sonde.store.layout import SEGMENT

# Below the 700 new objects that wake the garbage collector: at 1,000 every hundredth block cost a full collection. It
# also keeps each call into Arrow that holds the interpreter lock at a millisecond or two.
MAX_COLUMNS = 500
MAX_CELLS = 1 << 20
_COMPRESSED_VALUES = 128  # shorter columns do not get smaller, and twice as slow
_COLUMNS_A_BREATH = 128
_CELLS_A_BREATH = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """What `segment.json` says."""

    rows: int
    columns: int
    bins: int
    block_columns: int
    first_step: int
    last_step: int

    @property
    def num_blocks(self) -> int:
        """Files that the columns are spread over."""
        return -(-self.columns // self.block_columns) if self.columns else 0


# `step` and `time` are columns of their own; no tag ends in "@".
_RENAMED = {"step": "step@", "time": "time@"}


def column_names(tags: Sequence[str]) -> list[str]:
    """The names of a file's columns besides `step` and `time`: the tags, and `step@` and `time@` for tags so called."""
    return [_RENAMED.get(tag, tag) for tag in tags]


def block_path(folder: Path, number: int, suffix: str = "parquet") -> Path:
    """A block's file."""
    return folder / f"block-{number:04d}.{suffix}"


def read_segment(folder: Path) -> Segment:
    """The description of a segment.

    Raises:
        FileNotFoundError: it was just superseded, or only half of the run was copied.
        FormatError: it is damaged.
    """
    value = strict_json.loads((folder / SEGMENT).read_bytes())
    try:
        segment = Segment(**value)
        sizes = (segment.rows, segment.columns, segment.bins, segment.block_columns)
        if min(sizes) < 1 or not all(isinstance(number, int) for number in value.values()):
            raise TypeError("a number is none, or none that it can be.")
    except TypeError as error:
        raise FormatError(f"{folder / SEGMENT} is damaged: {error}") from error
    return segment


def write_segment(
    folder: Path,
    tags: Sequence[str],
    num_columns: int,
    bins: int,
    step: Int64,
    time: Float64,
    read: Callable[[int, int], Float32],
) -> Iterator[None]:
    """Write a segment beside its place and rename it there.

    Yields after each block, so that the caller can do other things meanwhile.

    Args:
        folder: Where the segment is to appear.
        tags: The table's columns.
        num_columns: How many of them, from the first, the segment has. (A million tags are not copied lightly.)
        bins: Numbers in each cell.
        step: Of each row.
        time: Of each row.
        read: Gives the columns `first` to `last` (not included), a row a series, each `rows * bins` long.
    """
    temporary = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        rows = len(step)
        per_block = max(1, min(MAX_COLUMNS, MAX_CELLS // (rows * bins)))
        for number, first in enumerate(range(0, num_columns, per_block)):
            last = min(first + per_block, num_columns)
            columns = read(first, last)
            _write_block(block_path(temporary, number), tags[first:last], bins, step, time, columns)
            if bins == 1:
                pyramid.write(block_path(temporary, number, "pyramid"), step, time, columns)
            _release()
            yield
        about = {
            "rows": rows,
            "columns": num_columns,
            "bins": bins,
            "block_columns": per_block,
            "first_step": int(step[0]),
            "last_step": int(step[-1]),
        }
        with (temporary / SEGMENT).open("w", encoding="utf-8") as file:
            file.write(strict_json.dumps(about) + "\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(folder)
        sync_folder(folder.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def sync_folder(folder: Path) -> None:
    """Ask the disk to keep a folder's list of names."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _write_block(path: Path, tags: Sequence[str], bins: int, step: Int64, time: Float64, columns: Float32) -> None:
    cell = pa.float32() if bins == 1 else pa.list_(pa.float32(), bins)
    names = column_names(tags)
    schema = pa.schema(chain((("step", pa.int64()), ("time", pa.float64())), zip(names, repeat(cell), strict=False)))
    rows = len(step)
    # `pa.array` would import pandas, where it is installed, to ask whether this is one of its own.
    arrays = [
        pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(np.ascontiguousarray(step, np.int64))], 0),
        pa.Array.from_buffers(pa.float64(), rows, [None, pa.py_buffer(np.ascontiguousarray(time, np.float64))], 0),
        *_to_arrow(columns, bins),
    ]
    leaf = "" if bins == 1 else ".list.element"
    encoding = {"step": "DELTA_BINARY_PACKED", "time": "BYTE_STREAM_SPLIT"}
    encoding.update(dict.fromkeys((name + leaf for name in names), "BYTE_STREAM_SPLIT"))
    breathe()
    table = pa.Table.from_arrays(arrays, schema=schema)
    del arrays  # here, between two breaths: letting go of some hundred objects takes a millisecond too
    breathe()
    # Into memory: a file of Python's would take the interpreter lock for each of some thousand small writes, and one of
    # Arrow's keeps it while it is opened, which on a busy disk takes tens of milliseconds.
    sink = pa.BufferOutputStream()
    compressed = rows * bins >= _COMPRESSED_VALUES
    pq.write_table(
        table,
        sink,
        compression="zstd" if compressed else "none",
        compression_level=1 if compressed else None,  # level 3 is 1% smaller and a fifth slower
        use_dictionary=False,
        column_encoding=encoding,
        write_statistics=False,  # steps are in segment.json; statistics of every column would double the footer
        store_schema=False,
        row_group_size=max(1, rows),
    )
    breathe()
    with path.open("wb") as file:
        file.write(sink.getvalue())
        file.flush()
        os.fsync(file.fileno())


def _release() -> None:
    """Have Arrow's allocator give back what it keeps: ten times what was in use, and more with each longer segment."""
    pool = pa.default_memory_pool()
    if pool.backend_name != "system":  # there it would be the memory of all threads, the training's among them
        pool.release_unused()


def _to_arrow(columns: Float32, bins: int) -> Iterator[pa.Array]:
    columns = np.ascontiguousarray(columns)
    rows, stride = columns.shape[1] // bins, columns.shape[1] * 4
    data = pa.py_buffer(columns)
    at_once = max(1, min(_COLUMNS_A_BREATH, _CELLS_A_BREATH // rows))
    for first in range(0, len(columns), at_once):
        breathe()
        missing = is_missing(columns[first : first + at_once, ::bins])  # of a histogram, all bins or none are measured
        valid = np.packbits(~missing, axis=1, bitorder="little")
        validity, valid_stride = pa.py_buffer(valid), valid.shape[1]
        for i, nulls in enumerate(missing.sum(axis=1).tolist()):
            mask = validity.slice(i * valid_stride, valid_stride) if nulls else None
            values = data.slice((first + i) * stride, stride)
            if bins == 1:
                yield pa.Array.from_buffers(pa.float32(), rows, [mask, values], nulls)
            else:
                child = pa.Array.from_buffers(pa.float32(), rows * bins, [None, values], 0)
                yield pa.Array.from_buffers(pa.list_(pa.float32(), bins), rows, [mask], nulls, children=[child])


def read_footer(path: str) -> Any:
    """The parsed footer of a block, to open it faster next time."""
    with BlockFile(Path(path), bins=1) as block:
        return block.footer


class BlockFile:
    """A block's Parquet file opened for reading columns by their place in it."""

    def __init__(self, path: Path, *, bins: int, footer: Any | None = None) -> None:
        # What `pq.ParquetFile` wraps. The wrapper makes two Python objects a column that nobody needs here: enough for
        # the garbage collector to wake up at every file.
        self._reader = pq.core.ParquetReader()
        # Bytes: Arrow encodes a text as UTF-8, and there are folders whose names are none.
        self._reader.open(pa.OSFile(os.fsencode(path)), metadata=footer)
        self._bins = bins

    @property
    def footer(self) -> Any:
        """The parsed footer."""
        return self._reader.metadata

    def steps(self) -> Int64:
        """The step of every row."""
        return _plain(self._reader.read_column(0), np.dtype(np.int64))

    def times(self) -> Float64:
        """The time of every row."""
        return _plain(self._reader.read_column(1), np.dtype(np.float64))

    def column(self, place: int) -> Float32:
        """The values of the block's column number `place`, `MISSING` where null; `rows * bins` of them."""
        return _from_arrow(self._reader.read_column(2 + place), self._bins)

    def close(self) -> None:
        """Let go of the file."""
        self._reader.close()

    def __enter__(self) -> "BlockFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# Buffers are read as they are: `to_numpy` would import pandas, where it is installed (0.2 s, once).


def _plain(column: pa.ChunkedArray, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """A column without nulls."""
    pieces = [
        np.frombuffer(chunk.buffers()[1], dtype)[chunk.offset : chunk.offset + len(chunk)] for chunk in column.chunks
    ]
    return pieces[0] if len(pieces) == 1 else np.concatenate([np.empty(0, dtype), *pieces])


def _from_arrow(column: pa.ChunkedArray, bins: int) -> Float32:
    pieces = [_piece(chunk, bins) for chunk in column.chunks]
    return pieces[0] if len(pieces) == 1 else np.concatenate([np.empty(0, np.float32), *pieces])


def _piece(chunk: pa.Array, bins: int) -> Float32:
    # The values of measured cells only: a plain array of floats, or the lists one behind another (nulls take no room
    # there).
    measured = chunk if bins == 1 else chunk.flatten()
    values = np.frombuffer(measured.buffers()[1], np.float32)[measured.offset : measured.offset + len(measured)]
    if chunk.null_count == 0:
        return values
    bits = np.unpackbits(np.frombuffer(chunk.buffers()[0], np.uint8), bitorder="little")
    missing = bits[chunk.offset : chunk.offset + len(chunk)] == 0
    if bins == 1:
        return np.where(missing, MISSING, values)
    out = np.full((len(chunk), bins), MISSING, np.float32)
    out[~missing] = values.reshape(-1, bins)
    return out.reshape(-1)
