"""What the columns of a Parquet file unpack to, read off its bytes before anything is unpacked.

A page of a hundred bytes may say that it unpacks to two gigabytes, and keep its word. The sizes in the file's footer
are only a copy of what the headers of the pages say, so they prove nothing. Where the pages of a column lie is read
here as well: Arrow's own way to ask ends the whole process where statistics do not fit the schema (a C++ exception that
pyarrow 26 does not catch). Both are structs in Thrift's compact protocol (apache/parquet-format: parquet.thrift;
apache/thrift: doc/specs/thrift-compact-protocol.md).
"""

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from sonde.core.errors import FormatError
from sonde.store.positions import read_at

INT64, FLOAT, DOUBLE = 2, 4, 5  # physical types

_HEADER_BYTES = 1024  # Sonde's own have some thirty: no statistics are written
_FOOTER_BYTES = 16 << 20
_MAX_DEPTH = 8
_UNPACKED, _PACKED, _PAGE, _PAGE_V2 = 2, 3, 5, 8
_NUM_VALUES = 1
# Of FileMetaData, RowGroup, ColumnChunk and ColumnMetaData.
_ROW_GROUPS, _CHUNKS, _META = 4, 1, 3
_ELSEWHERE = {1: "in another file", 8: "encrypted", 9: "encrypted"}
_TYPE, _CHUNK_VALUES, _CHUNK_SIZE, _FIRST_PAGE, _DICTIONARY = 1, 5, 7, 9, 11
_KEPT = {_TYPE: 0, _CHUNK_VALUES: 1, _CHUNK_SIZE: 2, _FIRST_PAGE: 3, _DICTIONARY: 4}
_LIST, _SET, _STRUCT = 9, 10, 12
_ENDLESS = "it ends within a struct of Thrift."

Chunks = npt.NDArray[np.int64]
"""A row a column: its physical type, its values, the bytes of its pages, where they begin, and where its dictionary
does (0: it has none)."""


def column_chunks(fd: int) -> Chunks:
    """The columns of a file of one row group.

    Raises:
        FormatError: it is not Parquet, or a column lies elsewhere.
    """
    size = os.fstat(fd).st_size
    end = read_at(fd, 8, max(0, size - 8))
    length = int.from_bytes(end[:4], "little")
    if end[4:] != b"PAR1" or not 0 < length <= min(size - 12, _FOOTER_BYTES):
        raise FormatError("it is not Parquet, or its end is missing.")
    data = read_at(fd, length, size - 8 - length)
    field, at = 0, 0
    while True:
        field, kind, at = _field(data, at, field)
        if not kind:
            raise FormatError("it has no rows.")
        if field == _ROW_GROUPS and kind == _LIST:
            num, kind, at = _items(data, at)
            if num != 1 or kind != _STRUCT:
                raise FormatError("it is no block of a table: its rows are not in one group.")
            return _group(data, at)
        at = _skip(data, at, kind, 0)


def _group(data: bytes, at: int) -> Chunks:
    field = 0
    while True:
        field, kind, at = _field(data, at, field)
        if not kind:
            raise FormatError("it has no columns.")
        if field == _CHUNKS and kind == _LIST:
            num, kind, at = _items(data, at)
            if kind != _STRUCT:
                raise FormatError("its columns are none.")
            chunks = np.zeros((num, len(_KEPT)), np.int64)
            for chunk in chunks:
                at = _chunk(data, at, chunk)
            return chunks
        at = _skip(data, at, kind, 0)


def _chunk(data: bytes, at: int, chunk: npt.NDArray[np.int64]) -> int:
    field = 0
    while True:
        field, kind, at = _field(data, at, field)
        if not kind:
            return at
        if field in _ELSEWHERE:
            raise FormatError(f"a column is {_ELSEWHERE[field]}.")
        if field != _META or kind != _STRUCT:
            at = _skip(data, at, kind, 0)
            continue
        inner = 0
        while True:
            inner, kind, at = _field(data, at, inner)
            if not kind:
                break
            if inner in _KEPT and kind in (5, 6):
                value, at = _whole(data, at)
                if not 0 <= value < 1 << 62:
                    raise FormatError("a size of a column is negative.")
                chunk[_KEPT[inner]] = value
            else:
                at = _skip(data, at, kind, 0)


def check_pages(fd: int, start: int, size: int, *, num_values: int, unpacked_bytes: int) -> None:
    """Complain of a column whose pages hold more than they may.

    Args:
        fd: The file.
        start: Where its first page begins.
        size: How many bytes its pages take.
        num_values: How many values it has.
        unpacked_bytes: The most bytes that it may unpack to.

    Raises:
        FormatError: it has more, or is no row of pages.
    """
    at, end = start, start + size
    while at < end:
        header, length = _header(read_at(fd, min(_HEADER_BYTES, end - at), at), 0, 0)
        unpacked, packed = header.get(_UNPACKED), header.get(_PACKED)
        page = header.get(_PAGE, header.get(_PAGE_V2))
        values = page.get(_NUM_VALUES) if isinstance(page, dict) else None
        if not (isinstance(unpacked, int) and isinstance(packed, int) and isinstance(values, int)):
            raise FormatError("a page's header is not one of a page of values.")
        if min(unpacked, packed, values) < 0:
            raise FormatError("a page's header has a negative size.")
        num_values, unpacked_bytes = num_values - values, unpacked_bytes - unpacked
        if num_values < 0 or unpacked_bytes < 0:
            raise FormatError("a column's pages hold more values than the column has rows.")
        at += length + packed
    if at != end or num_values:  # a reader would go on behind the end for values that are missing
        raise FormatError("a column's pages are not as long, or have not as many values, as it says.")


def _header(data: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """The whole numbers and structs of a struct by the number of their field, and where it ends."""
    found: dict[int, Any] = {}
    field = 0
    while True:
        field, kind, at = _field(data, at, field)
        if not kind:
            return found, at
        if kind in (4, 5, 6):
            found[field], at = _whole(data, at)
        elif kind == _STRUCT and depth < _MAX_DEPTH:
            found[field], at = _header(data, at, depth + 1)
        else:
            at = _skip(data, at, kind, depth)


def _field(data: bytes, at: int, before: int) -> tuple[int, int, int]:
    """The number and kind of a struct's next field, and where it begins; kind 0 where the struct ends."""
    if at >= len(data):
        raise FormatError(_ENDLESS)
    first = data[at]
    if not first:
        return 0, 0, at + 1
    if first >> 4:
        return before + (first >> 4), first & 0x0F, at + 1
    field, at = _whole(data, at + 1)
    return field, first & 0x0F, at


def _items(data: bytes, at: int) -> tuple[int, int, int]:
    """How many items a list has, of which kind, and where they begin."""
    if at >= len(data):
        raise FormatError(_ENDLESS)
    first, at = data[at], at + 1
    num = first >> 4
    if num == 15:
        num, at = _varint(data, at)
    if num > len(data) - at:  # each takes a byte at least
        raise FormatError(_ENDLESS)
    return num, first & 0x0F, at


def _skip(data: bytes, at: int, kind: int, depth: int) -> int:
    """Where a value ends."""
    if depth > _MAX_DEPTH:
        raise FormatError("it is nested too deep.")
    if kind in (1, 2):  # true and false have no bytes of their own
        return at
    if kind == 3:
        return at + 1
    if kind in (4, 5, 6):
        return _varint(data, at)[1]
    if kind == 7:
        return at + 8
    if kind == 8:
        length, at = _varint(data, at)
        return at + length
    if kind in (_LIST, _SET):
        num, kind, at = _items(data, at)
        for _ in range(num):
            at = at + 1 if kind in (1, 2) else _skip(data, at, kind, depth + 1)
        return at
    if kind == _STRUCT:
        field = 0
        while True:
            field, kind, at = _field(data, at, field)
            if not kind:
                return at
            at = _skip(data, at, kind, depth + 1)
    raise FormatError("it has a field of a kind that Parquet does not use.")


def _whole(data: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return value >> 1 ^ -(value & 1), at  # zigzag


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte, at = data[at], at + 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise FormatError(_ENDLESS)
