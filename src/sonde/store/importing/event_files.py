"""TensorBoard's event files, read without TensorBoard: framed records, each a protocol buffer of one moment.

A record is its length (8 bytes), the masked CRC-32C of the length, the content, and the masked CRC-32C of the content.
A file that was cut off in the middle of a record, as by a training that was killed or still runs, ends there.
"""

import os
import struct
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from sonde.core.errors import FormatError
from sonde.store import opening
from sonde.store.importing import wire

# Images, sound and graphs; a scalar takes some fifty bytes.
_LARGEST_BYTES = 1 << 20

# tensorflow/core/util/event.proto
_WALL_TIME, _STEP, _SUMMARY, _SESSION_LOG = 1, 2, 5, 7
# tensorflow/core/framework/summary.proto
_VALUE, _TAG, _SIMPLE_VALUE, _TENSOR, _METADATA = 1, 1, 2, 8, 9
_PLUGIN, _PLUGIN_NAME, _PLUGIN_CONTENT = 1, 1, 2
# tensorflow/core/framework/tensor.proto
_DTYPE, _CONTENT, _STRINGS = 1, 4, 8
_PACKED = {1: (5, "<f"), 2: (6, "<d")}  # element type: its field, and how an element is packed
_SESSION_START = 1


class Scalar(NamedTuple):
    """A number of an event file."""

    tag: str
    step: int
    time: float
    value: float


class Text(NamedTuple):
    """Text, or the content of a plug-in that Sonde knows."""

    tag: str
    plugin: str
    content: bytes


class SessionStart(NamedTuple):
    """The writer said that the training begins again at a step."""

    step: int


def events(file: BinaryIO, path: str | os.PathLike[str]) -> Iterator[Scalar | Text | SessionStart]:
    """What an event file says, in order, but for pictures, histograms and graphs.

    Raises:
        FormatError: the file is damaged, otherwise than by an end that is missing.
    """
    for content in _records(file, path):
        yield from _event(content)


def first_time(file: BinaryIO, path: str | os.PathLike[str]) -> float:
    """The time of the first record; infinity where there is none."""
    for content in _records(file, path):
        for number, value in wire.fields(content):
            if number == _WALL_TIME and isinstance(value, bytes):
                return wire.double(value)
    return float("inf")


def _records(file: BinaryIO, path: str | os.PathLike[str]) -> Iterator[bytes]:
    size = opening.stored_bytes(file.fileno())
    at = 0
    while at + 16 <= size:
        head = file.read(12)
        length, check = struct.unpack("<QI", head)
        if _masked_crc(head[:8]) != check:
            raise FormatError(f"{path} is no event file of TensorBoard, or is damaged at byte {at}; copy it again.")
        if at + 16 + length > size:
            return  # torn: the last record was never written in full
        if length > _LARGEST_BYTES:
            file.seek(length + 4, os.SEEK_CUR)
        else:
            content = file.read(length)
            (check,) = struct.unpack("<I", file.read(4))
            if _masked_crc(content) != check:
                if at + 16 + length == size:
                    return  # the size of a file may reach the disk before its content
                raise FormatError(f"{path} is damaged at byte {at}; copy it again.")
            yield content
        at += 16 + length


def _event(content: bytes) -> Iterator[Scalar | Text | SessionStart]:
    time, step, summaries, session = 0.0, 0, [], None
    for number, value in wire.fields(content):
        if isinstance(value, int):
            step = (value - (1 << 64) if value >= 1 << 63 else value) if number == _STEP else step
        elif number == _WALL_TIME:
            time = wire.double(value)
        elif number == _SUMMARY:
            summaries.append(value)
        elif number == _SESSION_LOG:
            session = value
    if session is not None and wire.whole(session, 1) == _SESSION_START:
        yield SessionStart(step)
    for summary in summaries:
        for item in wire.members(summary, _VALUE):
            yield from _item(item, step, time)


def _item(item: bytes, step: int, time: float) -> Iterator[Scalar | Text]:
    tag, simple, tensor, metadata = "", None, None, b""
    for number, value in wire.fields(item):
        if not isinstance(value, bytes):
            continue
        if number == _TAG:
            tag = value.decode("utf-8", errors="replace")
        elif number == _SIMPLE_VALUE:
            simple = wire.single(value)
        elif number == _TENSOR:
            tensor = value
        elif number == _METADATA:
            metadata = value
    plugin = wire.member(metadata, _PLUGIN) or b""
    kind = wire.text(plugin, _PLUGIN_NAME)
    if kind == "hparams":
        yield Text(tag, kind, wire.member(plugin, _PLUGIN_CONTENT) or b"")
    elif simple is not None:
        yield Scalar(tag, step, time, simple)
    elif tensor is not None and kind == "text":
        yield from (Text(tag, kind, content) for content in wire.members(tensor, _STRINGS))
    elif tensor is not None and kind in ("scalars", ""):
        number_of_it = _single(tensor)
        if number_of_it is not None:
            yield Scalar(tag, step, time, number_of_it)


def _single(tensor: bytes) -> float | None:
    """The value of a tensor of one float or double; None for all others."""
    packed = _PACKED.get(wire.whole(tensor, _DTYPE))
    if packed is None:
        return None
    field, layout = packed
    content = wire.member(tensor, _CONTENT) or wire.member(tensor, field)
    if content is None or len(content) != struct.calcsize(layout):
        return None
    return float(struct.unpack(layout, content)[0])


def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)  # Castagnoli's polynomial, bits reversed
        table.append(crc)
    return tuple(table)


_CRC_TABLE = _crc_table()


def _masked_crc(content: bytes) -> int:
    crc, table = 0xFFFF_FFFF, _CRC_TABLE
    for byte in content:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFF_FFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFF_FFFF
