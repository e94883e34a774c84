"""TensorBoard's event records, encoded by the row.

An event file is a chain of records: the length (uint64), its checksum, a protocol buffer, its checksum; the checksums
are CRC-32C, rotated and shifted. TensorBoard's own writer makes an object for each value and a step of Python for each
byte of the checksum: 24 µs a value, during which the training cannot have the interpreter. A row of the same series
differs from the last in its numbers only, so they are put into bytes made once, and the checksum is a sum over tables.
"""

import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sonde.core.frames import Float32, is_missing
from sonde.sinks.names import Name

_BLOCK = 256


class Scalars:
    """Encodes rows of the same series as events.

    Args:
        names: What the series are called there.
    """

    def __init__(self, names: Sequence[Name]) -> None:
        values = [_value(name.text.encode()) for name in names]
        self._lengths = np.array([len(value) for value in values])
        self._bytes = np.frombuffer(b"".join(values), np.uint8)
        self._places = (np.cumsum(self._lengths) - 4)[:, None] + np.arange(4)
        self._factors = np.array([name.factor for name in names])

    def event(self, step: int, time: float, row: Float32) -> bytes:
        """An event with the values of a row, without those that were not measured; nothing where none was."""
        missing = is_missing(row)
        if missing.all():
            return b""
        # Only where a factor asks for it: the bits of a NaN stay as they are.
        numbers = row if (self._factors == 1).all() else (row * self._factors).astype(np.float32)
        summary = self._bytes.copy()
        summary[self._places] = np.ascontiguousarray(numbers, "<f4").view(np.uint8).reshape(-1, 4)
        if missing.any():
            summary = summary[np.repeat(~missing, self._lengths)]
        return b"\x09" + struct.pack("<d", time) + b"\x10" + _varint(step) + _within(5, summary.tobytes())


def record(event: bytes) -> bytes:
    """An event as it stands in a file."""
    length = struct.pack("<Q", len(event))
    return length + _masked(checksum(length)) + event + _masked(checksum(event))


def checksum(data: bytes) -> int:
    """CRC-32C of at least four bytes.

    Example:
        >>> hex(checksum(b"123456789"))
        '0xe3069283'
    """
    # The register begins as all ones, which is the same as inverting the first four bytes; zeros in front do nothing.
    padded = np.zeros(-(-len(data) // _BLOCK) * _BLOCK, np.uint8)
    content = padded[len(padded) - len(data) :]
    content[:] = np.frombuffer(data, np.uint8)
    content[:4] ^= 0xFF
    blocks = np.bitwise_xor.reduce(_TABLES[_BACKWARDS, padded.reshape(-1, _BLOCK)], axis=1)
    register = 0
    for block in blocks.tolist():
        first, second, third, fourth = register & 255, register >> 8 & 255, register >> 16 & 255, register >> 24
        register = _SHIFT[0][first] ^ _SHIFT[1][second] ^ _SHIFT[2][third] ^ _SHIFT[3][fourth] ^ block
    return int(register) ^ 0xFFFFFFFF


def _tables() -> npt.NDArray[np.uint32]:
    """What a byte, followed by 0 to 255 bytes of zero, does to the register."""
    first: npt.NDArray[np.uint32] = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        first = np.where(first & 1, first >> 1 ^ np.uint32(0x82F63B78), first >> 1)
    tables = [first]
    for _ in range(_BLOCK - 1):
        tables.append(tables[-1] >> 8 ^ first[tables[-1] & 255])
    return np.array(tables)


_TABLES = _tables()
_BACKWARDS = np.arange(_BLOCK - 1, -1, -1)
_SHIFT = _TABLES[_BACKWARDS[:4]].tolist()
"""What each byte of the register becomes after a block."""


def _masked(crc: int) -> bytes:
    rotated = crc >> 15 | crc << 17 & 0xFFFFFFFF
    return struct.pack("<I", rotated + 0xA282EAD8 & 0xFFFFFFFF)


def _value(name: bytes) -> bytes:
    """A `Summary.Value` with room for its float at the end, as a member of `Summary`."""
    return _within(1, _within(1, name) + b"\x15" + bytes(4))


def _within(field: int, content: bytes) -> bytes:
    return bytes([field << 3 | 2]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)
