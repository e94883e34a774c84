"""The live tail of a table: an append-only file of fixed-width rows.

A header of 64 bytes (magic, version, values a row, checksum), then rows of `step` (int64), `time` (float64), the values
(float32) and a CRC-32 of the row that starts from the header's own. Appended rows never move, so a reader needs no
lock: what is not whole, or does not match its checksum, is not there yet.
"""

import functools
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sonde.core.frames import Float32
from sonde.core.records import Float64, Int64
from sonde.store import lent_memory, opening
from sonde.store.layout import IN_BRANCH
from sonde.store.positions import read_at, read_into
from sonde.store.times import sound

_MAGIC = b"SONDEROW"
_HEADER = struct.Struct("<8sIIQ")  # magic, version, width, number of the log
HEADER_BYTES = 64
_VERSION = 1

# A reader checks the newest rows only: a killed process cannot leave a whole row with wrong bytes, and after a power
# cut the writer that opens the run again checks them all.
_CHECKED_ROWS = 512
_CHECKED_BYTES = 8 << 20
_CHUNK_BYTES = 1 << 20  # what a core's cache holds; larger ones are new memory each time, twice as slow

Rows = npt.NDArray[Any]


@functools.lru_cache(maxsize=256)
def row_dtype(width: int) -> np.dtype[Any]:
    """The layout of a row with `width` values."""
    return np.dtype([("step", "<i8"), ("time", "<f8"), ("values", "<f4", (width,)), ("crc", "<u4")])


def header(width: int, number: int) -> bytes:
    """The first bytes of a log."""
    head = _HEADER.pack(_MAGIC, _VERSION, width, number)
    return (head + struct.pack("<I", zlib.crc32(head))).ljust(HEADER_BYTES, b"\0")


def seed(width: int, number: int) -> int:
    """Where a log's checksums start: a row that strayed here from another log does not match."""
    return zlib.crc32(_HEADER.pack(_MAGIC, _VERSION, width, number))


def checksum(row: memoryview, start: int) -> int:
    """The checksum of one row's bytes."""
    return zlib.crc32(row[:-4], start)


class RowLog:
    """A log opened for reading.

    A file that is not a log, or whose header is torn, reads as empty.
    """

    def __init__(self, path: Path, *, check_all: bool = False) -> None:
        self._fd = opening.descriptor(path, depth=IN_BRANCH)
        try:
            self._open(check_all)
        except BaseException:
            os.close(self._fd)
            raise

    def _open(self, check_all: bool) -> None:
        head = read_at(self._fd, HEADER_BYTES, 0)
        self.width, self._seed = 0, 0
        count = 0
        if len(head) == HEADER_BYTES:
            magic, version, width, number = _HEADER.unpack_from(head)
            if magic == _MAGIC and version == _VERSION and header(width, number) == head:
                self.width, self._seed = width, seed(width, number)
                count = (opening.stored_bytes(self._fd) - HEADER_BYTES) // (20 + 4 * width)
        self._stride = 20 + 4 * self.width
        self._good = np.ones(max(0, count), bool)
        count = len(self._good)
        newest = count if check_all else min(count, _CHECKED_ROWS, max(1, _CHECKED_BYTES // self._stride))
        self._check(count - newest)
        # Index of every good row in the file; nearly always all of them.
        self._where = np.flatnonzero(self._good)

    def _check(self, first: int) -> None:
        stride, count = self._stride, len(self._good)
        chunk = max(1, _CHUNK_BYTES // stride)
        for start in range(first, count, chunk):
            rows = min(chunk, count - start)
            data = memoryview(read_at(self._fd, rows * stride, HEADER_BYTES + start * stride))
            for i in range(rows):
                row = data[i * stride : (i + 1) * stride]
                self._good[start + i] = len(row) == stride and checksum(row, self._seed) == int.from_bytes(
                    row[-4:], "little"
                )

    def __len__(self) -> int:
        return len(self._where)

    def steps(self) -> Int64:
        """The step of every row."""
        return np.ascontiguousarray(self._stamps.view("<i8")[:, 0])

    def times(self) -> Float64:
        """The time of every row."""
        return sound(np.ascontiguousarray(self._stamps.view("<f8")[:, 1]))

    @functools.cached_property
    def _stamps(self) -> npt.NDArray[np.uint8]:
        return self._fields(0, 16)  # both at once: in a file of rows, two columns cost as much as one

    def values(self, first: int, last: int) -> Float32:
        """Columns `first` to `last` (not included) of every row, a row each."""
        if first >= min(last, self.width):
            return np.empty((len(self), 0), np.float32)
        last = min(last, self.width)
        return self._fields(16 + 4 * first, 4 * (last - first)).view("<f4")

    def _fields(self, offset: int, size: int) -> npt.NDArray[np.uint8]:
        """The bytes `offset` to `offset + size` of each good row."""
        out = lent_memory.empty((len(self), size), np.uint8)
        stride = self._stride
        if stride <= max(16 * size, 4096):  # reading it all costs less than many small reads
            chunk = max(1, _CHUNK_BYTES // stride)
            for start in range(0, len(self), chunk):
                where = self._where[start : start + chunk]
                lowest, highest = int(where[0]), int(where[-1]) + 1
                data = read_at(self._fd, (highest - lowest) * stride, HEADER_BYTES + lowest * stride)
                block = np.frombuffer(data, np.uint8).reshape(highest - lowest, stride)[:, offset : offset + size]
                out[start : start + len(where)] = block if len(block) == len(where) else block[where - lowest]
        else:
            for i, row in enumerate(self._where):
                read_into(self._fd, memoryview(out[i]), HEADER_BYTES + int(row) * stride + offset)
        return out

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)

    def __enter__(self) -> "RowLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
