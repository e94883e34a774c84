"""Reads protocol buffers without their schema: numbered fields, one after the other."""

import struct
from collections.abc import Iterator

from sonde.core.errors import FormatError

_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5
_WIDTHS = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: number and content, a whole number for varints and bytes for everything else.

    Raises:
        FormatError: it is no protocol buffer.

    Example:
        >>> list(fields(bytes([0x08, 0x96, 0x01, 0x12, 0x02]) + b"hi"))
        [(1, 150), (2, b'hi')]
    """
    at, end = 0, len(message)
    while at < end:
        key, at = _varint(message, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if kind == _BYTES:
            width, at = _varint(message, at)
        elif kind in _WIDTHS:
            width = _WIDTHS[kind]
        else:
            raise FormatError(f"a field of kind {kind} is not part of protocol buffers.")
        if at + width > end:
            raise FormatError("a field is longer than its message.")
        yield key >> 3, message[at : at + width]
        at += width


def members(message: bytes, number: int) -> Iterator[bytes]:
    """All contents of one field that are bytes."""
    for field, value in fields(message):
        if field == number and isinstance(value, bytes):
            yield value


def member(message: bytes, number: int) -> bytes | None:
    """The last content of a field, as protocol buffers want it; None where it is absent or a varint."""
    found = None
    for found in members(message, number):  # noqa: B007  # the last one counts
        pass
    return found


def text(message: bytes, number: int) -> str:
    """A text, empty where it is absent."""
    return (member(message, number) or b"").decode("utf-8", errors="replace")


def whole(message: bytes, number: int) -> int:
    """A signed whole number, 0 where it is absent."""
    found = 0
    for field, value in fields(message):
        if field == number and isinstance(value, int):
            found = value
    return found - (1 << 64) if found >= 1 << 63 else found


def double(content: bytes) -> float:
    """Eight bytes as a number.

    Raises:
        FormatError: there are not eight.
    """
    return _unpacked("<d", content)


def single(content: bytes) -> float:
    """Four bytes as a number.

    Raises:
        FormatError: there are not four.
    """
    return _unpacked("<f", content)


def _unpacked(layout: str, content: bytes) -> float:
    if len(content) != struct.calcsize(layout):
        raise FormatError(f"a number has {len(content)} bytes.")
    return float(struct.unpack(layout, content)[0])


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < 70:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
    raise FormatError("a number does not end.")
