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

import numpy as np
import numpy.typing as npt

from sonde.core.frames import MISSING, Float32, is_missing
from sonde.core.records import Float64, Int64, Window
from sonde.store.breath import breathe

BASE_ROWS = 64
FACTOR = 8

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
    measured = ~is_missing(columns)
    rows = len(step)
    place = rows - 1 - np.argmax(measured[:, ::-1], axis=1)
    value = columns[np.arange(len(columns)), place].copy()
    value[~measured.any(axis=1)] = MISSING
    return Newest(value, step[place], time[place])


def write(path: Path, step: Int64, time: Float64, columns: Float32) -> None:
    """Write the pyramid of a block; `columns` has a row a series, at least one value each."""
    figures = summarise(columns)
    last = newest(step, time, columns)
    starts = [step[::BASE_ROWS]]
    while len(starts[-1]) > 1:
        starts.append(starts[-1][::FACTOR])
    with path.open("wb") as file:
        file.write(_HEADER.pack(_MAGIC, _VERSION, len(columns), len(step), figures.shape[1], 0))
        for part in (np.concatenate(starts), last.step, last.time, last.value, figures):
            file.write(np.ascontiguousarray(part).data)
        file.flush()
        os.fsync(file.fileno())


def summarise(columns: Float32) -> Float32:
    """The figures of every column, (columns, 3 or 5, buckets of all levels): min, mean, max, and counts if needed."""
    num_columns, rows = columns.shape
    finite = np.isfinite(columns)
    if dense := bool(finite.all()):
        low = high = columns
        total, count = columns.astype(np.float64), np.ones(1)
        nonfinite = np.zeros(1)
    else:
        low, high = (
            np.where(finite, columns, np.float32(np.inf)),
            np.where(finite, columns, np.float32(-np.inf)),
        )
        total, count = np.where(finite, columns, np.float64(0)), finite.astype(np.float64)
        nonfinite = (~finite & ~is_missing(columns)).astype(np.float64)
    figures = np.empty((num_columns, 3 if dense else 5, sum(level_sizes(rows))), np.float32)
    place, factor, size = 0, BASE_ROWS, rows
    counts_a_row = np.ones(rows) if dense else None
    while True:
        breathe()  # numpy keeps the interpreter lock in `where` and `reduceat`: a few milliseconds for a large block
        cuts = np.arange(0, size, factor)
        low, high = np.minimum.reduceat(low, cuts, axis=1), np.maximum.reduceat(high, cuts, axis=1)
        total = np.add.reduceat(total, cuts, axis=1)
        if counts_a_row is not None:
            counts_a_row = np.add.reduceat(counts_a_row, cuts)
            count = counts_a_row
        else:
            count, nonfinite = np.add.reduceat(count, cuts, axis=1), np.add.reduceat(nonfinite, cuts, axis=1)
        size = len(cuts)
        level = figures[:, :, place : place + size]
        with np.errstate(invalid="ignore", divide="ignore"):
            level[:, 1] = total / count
        level[:, 0], level[:, 2] = low, high
        if not dense:
            empty = count == 0
            level[:, 0][empty] = np.nan
            level[:, 2][empty] = np.nan
            level[:, 3], level[:, 4] = count, nonfinite
        if size == 1:
            return figures
        place, factor = place + size, FACTOR


class Pyramid:
    """A block's pyramid opened for reading.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is torn or not a pyramid; the block itself must be read instead.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            head = os.pread(self._fd, _HEADER.size, 0)
            if len(head) < _HEADER.size:
                raise ValueError(f"{path} is torn.")
            magic, version, self.num_columns, self.rows, self._figures, _ = _HEADER.unpack(head)
            self._sizes = level_sizes(self.rows)
            buckets = sum(self._sizes)
            self._starts_at = _HEADER.size
            self._newest_at = self._starts_at + 8 * buckets
            self._data_at = self._newest_at + 20 * self.num_columns
            size = self._data_at + 4 * self.num_columns * self._figures * buckets
            if magic != _MAGIC or version != _VERSION or os.fstat(self._fd).st_size != size:
                raise ValueError(f"{path} is torn.")
        except BaseException:
            os.close(self._fd)
            raise

    def newest(self) -> Newest:
        """The newest point of every column."""
        n = self.num_columns
        data = os.pread(self._fd, 20 * n, self._newest_at)
        return Newest(
            step=np.frombuffer(data, "<i8", n, 0),
            time=np.frombuffer(data, "<f8", n, 8 * n),
            value=np.frombuffer(data, "<f4", n, 16 * n),
        )

    def level(self, column: int, max_rows: int) -> tuple[Window, int]:
        """A column at the coarsest level whose buckets sum up at most `max_rows` rows, and how many they do.

        Level 0 where even that is too coarse: the caller asks for rows instead if `max_rows` is below `BASE_ROWS`.
        """
        number, bucket = 0, BASE_ROWS
        while number + 1 < len(self._sizes) and bucket * FACTOR <= max_rows:
            number, bucket = number + 1, bucket * FACTOR
        size, before, buckets = self._sizes[number], sum(self._sizes[:number]), sum(self._sizes)
        starts = np.frombuffer(os.pread(self._fd, 8 * size, self._starts_at + 8 * before), "<i8")
        column_at = self._data_at + 4 * column * self._figures * buckets
        figures = [
            np.frombuffer(os.pread(self._fd, 4 * size, column_at + 4 * (i * buckets + before)), "<f4")
            for i in range(self._figures)
        ]
        finite, nonfinite = self._counts(figures, size, bucket)
        return Window(starts, figures[0], figures[1], figures[2], finite, nonfinite), bucket

    def _counts(self, figures: list[npt.NDArray[np.float32]], size: int, bucket: int) -> tuple[Int64, Int64]:
        if self._figures == 5:
            return figures[3].astype(np.int64), figures[4].astype(np.int64)
        finite = np.full(size, bucket, np.int64)
        finite[-1] = self.rows - bucket * (size - 1)
        return finite, np.zeros(size, np.int64)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)

    def __enter__(self) -> "Pyramid":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
