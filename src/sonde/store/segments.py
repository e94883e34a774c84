"""Closed pieces of a table: Parquet that pandas, polars and DuckDB open without Sonde.

A segment is a folder of blocks. A block is one Parquet file of one row group: `step`, `time`, then up to 500 tags
(float32, null where nothing was measured, NaN where NaN was), zstd over byte-stream-split, with its pyramid beside it.
The longer a segment, the fewer columns a block has: about a million cells each, which bounds the memory of writing it
and the footer that reading one series parses. A segment appears by one rename, whole or not at all.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import chain, repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # here and not later: an ending process can import nothing any more
import pyarrow.parquet as pq

from sonde.core import strict_json
from sonde.core.errors import FormatError
from sonde.core.frames import MISSING, Float32, is_missing
from sonde.core.json_fields import member, whole
from sonde.core.records import Float64, Int64
from sonde.store import opening, pyramid
from sonde.store.breath import breathe
from sonde.store.layout import IN_BRANCH, IN_SEGMENT, SEGMENT
from sonde.store.parquet_pages import DOUBLE, FLOAT, INT64, Chunks, check_pages, column_chunks
from sonde.store.times import sound

# Below the 700 new objects that wake the garbage collector: at 1,000 every hundredth block cost a full collection. It
# also keeps each call into Arrow that holds the interpreter lock at a millisecond or two.
MAX_COLUMNS = 500
MAX_CELLS = 1 << 20
_COMPRESSED_VALUES = 128  # shorter columns do not get smaller, and twice as slow
_COLUMNS_A_BREATH = 128
_CELLS_A_BREATH = 1 << 16

_DESCRIPTION_BYTES = 64 << 10
# A footer has an element a column and a few more; a name has at most 1,024 characters.
_FOOTER_ELEMENTS, _FOOTER_TEXT_BYTES = 8 * MAX_COLUMNS, 8 << 10
_PAGE_SLACK_BYTES = 64 << 10


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
    try:
        value = strict_json.loads(opening.read_bytes(folder / SEGMENT, depth=IN_SEGMENT, limit=_DESCRIPTION_BYTES))
        segment = Segment(**{field.name: member(value, field.name, whole) for field in fields(Segment)})
        if min(segment.rows, segment.columns, segment.bins, segment.block_columns) < 1:
            raise FormatError("a size is below 1.")
        if segment.last_step < segment.first_step:
            raise FormatError("its last step is before its first.")
    except FormatError as error:
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
    opening.remove(temporary, depth=IN_BRANCH)
    opening.new_folder(temporary, depth=IN_BRANCH)  # not its parents: somebody may be removing the run
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
        with opening.writing(temporary / SEGMENT, depth=IN_SEGMENT) as file:
            file.write((strict_json.dumps(about) + "\n").encode())
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(folder)
        opening.sync_folder(folder.parent, depth=IN_BRANCH - 1)
    except BaseException:
        opening.remove(temporary, depth=IN_BRANCH)
        raise


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
    with opening.writing(path, depth=IN_SEGMENT) as file:
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


class Footer(NamedTuple):
    """The parsed footer of a block: as Arrow has it, and where its columns lie."""

    arrow: Any
    chunks: Chunks


def read_footer(path: str) -> Footer:
    """The parsed footer of a block, to open it faster next time."""
    with BlockFile(Path(path), bins=1) as block:
        return block.footer


class BlockFile:
    """A block's Parquet file opened for reading columns by their place in it.

    Nothing that it says of itself is believed before it is checked against the bytes that it has.

    Raises:
        OSError: it cannot be opened.
        FormatError: it is damaged (while its columns are read, too).
    """

    def __init__(self, path: Path, *, bins: int, footer: Footer | None = None) -> None:
        self._bins = bins
        self._file = os.fdopen(opening.descriptor(path, depth=IN_SEGMENT), "rb", buffering=0)
        try:
            fd = self._file.fileno()
            if opening.stored_bytes(fd) < os.fstat(fd).st_size:
                raise FormatError("the disk holds only a part of it; copy it again.")
            self._chunks = column_chunks(fd) if footer is None else footer.chunks
            # What `pq.ParquetFile` wraps. The wrapper makes two Python objects a column that nobody needs here: enough
            # for the garbage collector to wake up at every file.
            self._reader = pq.core.ParquetReader()
            with _refusals():
                self._reader.open(
                    pa.PythonFile(self._file, mode="r"),
                    metadata=None if footer is None else footer.arrow,
                    thrift_string_size_limit=_FOOTER_TEXT_BYTES,
                    thrift_container_size_limit=_FOOTER_ELEMENTS,
                )
                self._arrow = self._reader.metadata
                self.num_rows = int(self._arrow.num_rows)
                """How many rows it says it has."""
                if self._arrow.num_columns != len(self._chunks):
                    raise FormatError("its footer says different things of its columns.")
        except BaseException:
            self._file.close()
            raise

    @property
    def footer(self) -> Footer:
        """The parsed footer."""
        return Footer(self._arrow, self._chunks)

    def steps(self) -> Int64:
        """The step of every row."""
        return _plain(self._column(0, pa.int64()), np.dtype(np.int64))

    def times(self) -> Float64:
        """The time of every row."""
        return sound(_plain(self._column(1, pa.float64()), np.dtype(np.float64)))

    def column(self, place: int) -> Float32:
        """The values of the block's column number `place`, `MISSING` where null; `rows * bins` of them."""
        if self._bins == 1:
            return _from_arrow(self._column(2 + place, pa.float32()), 1)
        return _from_arrow(self._column(2 + place, pa.list_(pa.field("element", pa.float32()))), self._bins)

    def _column(self, place: int, kind: pa.DataType) -> pa.ChunkedArray:
        with _refusals():
            if not 0 <= place < len(self._chunks):
                raise FormatError("it has fewer columns than its segment says.")
            physical, num_values, size, start, dictionary = self._chunks[place].tolist()
            cells = self.num_rows * (self._bins if place > 1 else 1)
            if physical != _PHYSICAL.get(kind, FLOAT) or dictionary or num_values > cells:
                raise FormatError(f"column {place} is not one of {kind}.")
            # Levels and what packing adds take less than the values again.
            unpacked = 2 * cells * (8 if place < 2 else 4) + _PAGE_SLACK_BYTES
            check_pages(self._file.fileno(), start, size, num_values=num_values, unpacked_bytes=unpacked)
            column = self._reader.read_column(place)
            if not column.type.equals(kind) or len(column) != self.num_rows:
                raise FormatError(f"column {place} is not one of {kind}, or has not all rows.")
            return column

    def close(self) -> None:
        """Let go of the file."""
        self._reader.close()
        self._file.close()

    def __enter__(self) -> "BlockFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_PHYSICAL = {pa.int64(): INT64, pa.float64(): DOUBLE}


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Turns what Arrow refuses into a `FormatError`."""
    try:
        yield
    except (FormatError, FileNotFoundError):
        raise
    except (pa.ArrowException, ValueError, TypeError, OverflowError, IndexError, OSError) as error:
        raise FormatError(str(error).partition("\n")[0] or "it is not Parquet.") from error


# Buffers are read as they are: `to_numpy` would import pandas, where it is installed (0.2 s, once).


def _plain(column: pa.ChunkedArray, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """A column without nulls."""
    if column.null_count:
        raise FormatError("a row has no step or no time.")
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
    if bins > 1 and len(measured) != (len(chunk) - chunk.null_count) * bins:
        raise FormatError(f"a cell has not {bins} numbers.")
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
