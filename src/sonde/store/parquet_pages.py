"""What the pages of a Parquet column unpack to, read off their headers before anything is unpacked.

A page of a hundred bytes may say that it unpacks to two gigabytes, and keep its word. The sizes in the file's footer
are only a copy of what the headers say, so they prove nothing. A header is a struct in Thrift's compact protocol
(apache/parquet-format: PageHeader; apache/thrift: doc/specs/thrift-compact-protocol.md).
"""

import os
from typing import Any

from sonde.core.errors import FormatError

_HEADER_BYTES = 1024  # Sonde's own have some thirty: no statistics are written
_MAX_DEPTH = 4
_UNPACKED, _PACKED, _PAGE, _PAGE_V2 = 2, 3, 5, 8
_NUM_VALUES = 1


def check_pages(fd: int, start: int, size: int, *, num_values: int, unpacked_bytes: int) -> None:
    """Complain of a column whose pages hold more than they may.

    Args:
        fd: The file.
        start: Where its first page begins.
        size: How many bytes its pages take.
        num_values: The most values that it may have.
        unpacked_bytes: The most bytes that it may unpack to.

    Raises:
        FormatError: it has more, or is no row of pages.
    """
    at, end = start, start + size
    while at < end:
        header, length = _struct(os.pread(fd, min(_HEADER_BYTES, end - at), at), 0, 0)
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
    if at != end:
        raise FormatError("a column's last page is longer than the column.")


def _struct(data: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """The whole numbers and structs of a struct by the number of their field, and where it ends."""
    if depth > _MAX_DEPTH:
        raise FormatError("a page's header is nested too deep.")
    found: dict[int, Any] = {}
    field = 0
    while at < len(data):
        first, at = data[at], at + 1
        if not first:
            return found, at
        kind, delta = first & 0x0F, first >> 4
        if delta:
            field += delta
        else:
            field, at = _whole(data, at)
        if kind in (1, 2):  # true and false have no bytes of their own
            found[field] = kind == 1
        elif kind == 3:
            at += 1
        elif kind in (4, 5, 6):
            found[field], at = _whole(data, at)
        elif kind == 7:
            at += 8
        elif kind == 8:
            length, at = _varint(data, at)
            at += length
        elif kind == 12:
            found[field], at = _struct(data, at, depth + 1)
        else:
            raise FormatError("a page's header has a field that pages do not have.")
    raise FormatError("a page's header does not end.")


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
    raise FormatError("a page's header does not end.")
