"""A block of columns at coarser and coarser zoom, so that any window of any series costs what its picture has pixels.

Level 0 sums up 64 rows a bucket, each further level 8 buckets of the one below. A bucket has the minimum, mean and
maximum of its finite values and, in blocks where anything was missing or non-finite, the counts of finite and
non-finite ones. Missing values belong to no bucket's numbers. The file is a header, the first step of every bucket,
each column's newest point, then the float32 figures column by column: one series is one contiguous read.
"""

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sonde.core.frames import MISSING, Float32, is_missing
from sonde.core.records import Float64, Int64, Window
from sonde.store import opening
from sonde.store.breath import breathe
from sonde.store.layout import IN_SEGMENT
from sonde.store.positions import read_at
from sonde.store.times import sound

BASE_ROWS = 64
FACTOR = 8

# Whole buckets. Some 60 bytes are made of each cell; with larger pieces the memory of the process would rise with the
# first segment that is long enough, and the interpreter lock be held for milliseconds.
_PIECE_CELLS = 1 << 14

# Figures of several columns: up to a megabyte one read costs less than one for each column.
_READ_AT_ONCE = 1 << 18

_HEADER = struct.Struct("<8sIIQII")  # magic, version, columns, rows, figures a bucket, reserved
_MAGIC = b"SONDEPYR"
_VERSION = 1


def level_sizes(rows: int) -> list[int]:
    """Buckets of each level, down to a single one.

    Example:
        >>> level_sizes(1000), level_sizes(1)
        ([16, 2, 1], [1])
    """
    sizes = [-(-rows // BASE_ROWS)]
    while sizes[-1] > 1:
        sizes.append(-(-sizes[-1] // FACTOR))
    return sizes


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest measured point of each column of a block; `value` is missing where there is none."""

    value: Float32
    step: Int64
    time: Float64


def newest(step: Int64, time: Float64, columns: Float32) -> Newest:
    """The newest point of each column (`columns` has a row a series)."""
    num_columns, rows = columns.shape
    place, value = np.empty(num_columns, np.intp), np.empty(num_columns, np.float32)
    for first, last in _pieces(num_columns, max(1, _PIECE_CELLS // rows)):
        some = columns[first:last]
        measured = ~is_missing(some)
        place[first:last] = rows - 1 - np.argmax(measured[:, ::-1], axis=1)
        value[first:last] = some[np.arange(last - first), place[first:last]]
        value[first:last][~measured.any(axis=1)] = MISSING
    return Newest(value, step[place], time[place])


def write(path: Path, step: Int64, time: Float64, columns: Float32) -> None:
    """Write the pyramid of a block; `columns` has a row a series, at least one value each."""
    figures = summarise(columns)
    last = newest(step, time, columns)
    starts = [step[::BASE_ROWS]]
    while len(starts[-1]) > 1:
        starts.append(starts[-1][::FACTOR])
    with opening.writing(path, depth=IN_SEGMENT) as file:
        file.write(_HEADER.pack(_MAGIC, _VERSION, len(columns), len(step), figures.shape[1], 0))
        for part in (np.concatenate(starts), last.step, last.time, last.value, figures):
            file.write(np.ascontiguousarray(part).data)
        file.flush()
        os.fsync(file.fileno())


class Means(NamedTuple):
    """Several columns at one level: the first step of each bucket; of each column and bucket the mean and counts."""

    step: Int64
    mean: Float32
    finite: Float32
    nonfinite: Float32


class _Level(NamedTuple):
    """The finite values of a level's buckets, and how many there are of either kind; None where all are finite."""

    low: Float32
    high: Float32
    total: Float64
    finite: Float64 | None
    nonfinite: Float64 | None


def summarise(columns: Float32) -> Float32:
    """The figures of every column, (columns, 3 or 5, buckets of all levels): min, mean, max, and counts if needed."""
    num_columns, rows = columns.shape
    level = _base(columns)
    figures = np.empty((num_columns, 3 if level.finite is None else 5, sum(level_sizes(rows))), np.float32)
    place, bucket = 0, BASE_ROWS
    while True:
        size = level.low.shape[1]
        _fill(figures[:, :, place : place + size], level, _sizes(rows, bucket, size))
        if size == 1:
            return figures
        place, bucket = place + size, bucket * FACTOR
        breathe()  # numpy keeps the interpreter lock in `reduceat`
        level = _coarser(level, FACTOR)


def _fill(figures: Float32, level: _Level, sizes: Int64) -> None:
    with np.errstate(invalid="ignore", divide="ignore"):
        figures[:, 1] = level.total / (sizes if level.finite is None else level.finite)
    figures[:, 0], figures[:, 2] = level.low, level.high
    if level.finite is not None:
        none = level.finite == 0
        figures[:, 0][none] = np.nan
        figures[:, 2][none] = np.nan
        figures[:, 3], figures[:, 4] = level.finite, level.nonfinite


def _sizes(rows: int, bucket: int, num_buckets: int) -> Int64:
    """Rows of each bucket of a level."""
    sizes = np.full(num_buckets, bucket, np.int64)
    sizes[-1] = rows - bucket * (num_buckets - 1)
    return sizes


def _base(columns: Float32) -> _Level:
    """Level 0, piece by piece: what is made of all cells at once would be ten times as large as they are."""
    num_columns, rows = columns.shape
    pieces = [
        (slice(*some), slice(*stretch))
        for some in _pieces(num_columns, max(1, _PIECE_CELLS // rows))
        for stretch in _pieces(rows, _PIECE_CELLS)
    ]
    dense = all(bool(np.isfinite(columns[piece]).all()) for piece in pieces)
    shape = num_columns, level_sizes(rows)[0]
    level = _Level(
        np.empty(shape, np.float32),
        np.empty(shape, np.float32),
        np.empty(shape),
        None if dense else np.empty(shape),
        None if dense else np.empty(shape),
    )
    for some, stretch in pieces:
        breathe()  # numpy keeps the interpreter lock in `where` and `reduceat`
        buckets = slice(stretch.start // BASE_ROWS, -(-stretch.stop // BASE_ROWS))
        part = _coarser(_cells(columns[some, stretch], dense=dense), BASE_ROWS)
        for whole, own in zip(level, part, strict=True):
            if whole is not None:
                whole[some, buckets] = own
    return level


def _cells(columns: Float32, *, dense: bool) -> _Level:
    """Each value as a bucket of its own."""
    if dense:
        return _Level(columns, columns, columns.astype(np.float64), None, None)
    finite = np.isfinite(columns)
    return _Level(
        np.where(finite, columns, np.float32(np.inf)),
        np.where(finite, columns, np.float32(-np.inf)),
        np.where(finite, columns, np.float64(0)),
        finite.astype(np.float64),
        (~finite & ~is_missing(columns)).astype(np.float64),
    )


def _coarser(level: _Level, factor: int) -> _Level:
    """So many buckets as one, the last one of what is left."""
    cuts = np.arange(0, level.low.shape[1], factor)
    return _Level(
        np.minimum.reduceat(level.low, cuts, axis=1),
        np.maximum.reduceat(level.high, cuts, axis=1),
        _sums(level.total, factor),
        None if level.finite is None else _sums(level.finite, factor),
        None if level.nonfinite is None else _sums(level.nonfinite, factor),
    )


def _sums(values: Float64, factor: int) -> Float64:
    return np.add.reduceat(values, np.arange(0, values.shape[1], factor), axis=1)


def _pieces(total: int, size: int) -> list[tuple[int, int]]:
    """From 0 to `total` in pieces of a size: where each begins and ends."""
    return [(first, min(first + size, total)) for first in range(0, total, size)]


class Pyramid:
    """A block's pyramid opened for reading.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is torn or not a pyramid; the block itself must be read instead.
    """

    def __init__(self, path: Path) -> None:
        self._fd = opening.descriptor(path, depth=IN_SEGMENT)
        try:
            head = read_at(self._fd, _HEADER.size, 0)
            if len(head) < _HEADER.size:
                raise ValueError(f"{path} is torn.")
            magic, version, self.num_columns, self.rows, self._figures, _ = _HEADER.unpack(head)
            self._sizes = level_sizes(self.rows)
            buckets = sum(self._sizes)
            self._starts_at = _HEADER.size
            self._newest_at = self._starts_at + 8 * buckets
            self._data_at = self._newest_at + 20 * self.num_columns
            size = self._data_at + 4 * self.num_columns * self._figures * buckets
            if self._figures not in (3, 5) or not self.rows or not self.num_columns:
                raise ValueError(f"{path} is no pyramid.")
            if magic != _MAGIC or version != _VERSION or opening.stored_bytes(self._fd) != size:
                raise ValueError(f"{path} is torn.")
        except BaseException:
            os.close(self._fd)
            raise

    def newest(self) -> Newest:
        """The newest point of every column."""
        n = self.num_columns
        data = read_at(self._fd, 20 * n, self._newest_at)
        return Newest(
            step=np.frombuffer(data, "<i8", n, 0),
            time=sound(np.frombuffer(data, "<f8", n, 8 * n)),
            value=np.frombuffer(data, "<f4", n, 16 * n),
        )

    def level(self, column: int, max_rows: int) -> tuple[Window, int]:
        """A column at the coarsest level whose buckets sum up at most `max_rows` rows, and how many they do.

        Level 0 where even that is too coarse: the caller asks for rows instead if `max_rows` is below `BASE_ROWS`.
        """
        number, bucket = self._level_of(max_rows)
        size, before, buckets = self._sizes[number], sum(self._sizes[:number]), sum(self._sizes)
        starts = self._starts(number)
        column_at = self._data_at + 4 * column * self._figures * buckets
        figures = [
            np.frombuffer(read_at(self._fd, 4 * size, column_at + 4 * (i * buckets + before)), "<f4")
            for i in range(self._figures)
        ]
        finite, nonfinite = self._counts(figures, size, bucket)
        return Window(starts, figures[0], figures[1], figures[2], finite, nonfinite), bucket

    def means(self, columns: npt.NDArray[np.intp], max_rows: int) -> Means:
        """The means of some columns at the level that `level` would take: of a picture that has a row a column."""
        number, bucket = self._level_of(max_rows)
        size, before = self._sizes[number], sum(self._sizes[:number])
        if not len(columns) or columns.min() < 0 or columns.max() >= self.num_columns:
            raise ValueError("it has fewer columns than its segment says.")
        if self._figures == 3:
            mean = self._figures_of(columns, 1, 2, before, size)[:, 0]
            rows = _sizes(self.rows, bucket, size).astype(np.float32)
            finite, nonfinite = np.broadcast_to(rows, mean.shape), np.broadcast_to(np.float32(0), mean.shape)
        else:
            mean, _, finite, nonfinite = self._figures_of(columns, 1, 5, before, size).swapaxes(0, 1)
            if not all(bool(((count >= 0) & (count <= bucket)).all()) for count in (finite, nonfinite)):
                raise ValueError("a bucket counts values that it cannot have.")
        return Means(self._starts(number), mean, finite, nonfinite)

    def _figures_of(
        self, columns: npt.NDArray[np.intp], low: int, high: int, before: int, size: int
    ) -> npt.NDArray[np.float32]:
        """Some figures of some columns at one level: (columns, figures, buckets)."""
        buckets = sum(self._sizes)
        first, num = int(columns.min()), int(columns.max() - columns.min()) + 1
        if num * self._figures * buckets <= max(_READ_AT_ONCE, 8 * len(columns) * size):
            data = read_at(
                self._fd, 4 * num * self._figures * buckets, self._data_at + 4 * first * self._figures * buckets
            )
            whole = np.frombuffer(data, "<f4").reshape(num, self._figures, buckets)
            return whole[columns - first, low:high, before : before + size]
        found = np.empty((len(columns), high - low, size), np.float32)
        for place, column in enumerate(columns.tolist()):
            for figure in range(low, high):
                at = self._data_at + 4 * ((column * self._figures + figure) * buckets + before)
                found[place, figure - low] = np.frombuffer(read_at(self._fd, 4 * size, at), "<f4")
        return found

    def _level_of(self, max_rows: int) -> tuple[int, int]:
        number, bucket = 0, BASE_ROWS
        while number + 1 < len(self._sizes) and bucket * FACTOR <= max_rows:
            number, bucket = number + 1, bucket * FACTOR
        return number, bucket

    def _starts(self, number: int) -> Int64:
        size, before = self._sizes[number], sum(self._sizes[:number])
        return np.frombuffer(read_at(self._fd, 8 * size, self._starts_at + 8 * before), "<i8")

    def _counts(self, figures: list[npt.NDArray[np.float32]], size: int, bucket: int) -> tuple[Int64, Int64]:
        if self._figures == 5:
            if not all(bool(((count >= 0) & (count <= bucket)).all()) for count in figures[3:]):
                raise ValueError("a bucket counts values that it cannot have.")
            return figures[3].astype(np.int64), figures[4].astype(np.int64)
        return _sizes(self.rows, bucket, size), np.zeros(size, np.int64)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)

    def __enter__(self) -> "Pyramid":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
