"""A curve as a small PNG, since most mail programs show no SVG: a few hundred bytes, by the standard library."""

import math
import struct
import zlib
from collections.abc import Sequence

from sonde.core.palette import LIGHT

_PAPER, _LINE, _NON_FINITE = 0, 1, 2
_PALETTE = b"".join(bytes.fromhex(LIGHT[name][1:]) for name in ("paper", "series-0", "critical"))
_DEPTH, _INDEXED = 8, 3
_MARGIN = 3


def draw(values: Sequence[float], *, width: int = 320, height: int = 64) -> bytes:
    """A PNG of the values from left to right, the smallest at the foot; red columns where they are not finite.

    Where there are more values than columns, each column spans the least and the greatest of its own. Without a
    finite value there is no line.

    Args:
        values: What to draw, at least one.
        width: Pixels, at least 1.
        height: Pixels, at least 8.
    """
    return encode(raster(values, width=width, height=height))


def raster(values: Sequence[float], *, width: int, height: int) -> list[bytearray]:
    """The rows of the picture, top first, a palette's index each pixel: 0 paper, 1 line, 2 not finite.

    Example:
        >>> for row in raster([1.0, 3.0, float("nan"), 2.0], width=4, height=9):
        ...     print(*row)
        0 0 2 0
        0 0 2 0
        0 0 2 0
        0 1 2 0
        0 1 2 1
        1 1 2 0
        0 0 2 0
        0 0 2 0
        0 0 2 0
    """
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    foot, span = height - 1 - _MARGIN, height - 1 - 2 * _MARGIN

    def row(value: float) -> int:
        # Halves first: the range of two huge values would be infinite.
        share = (value / 2 - low / 2) / (high / 2 - low / 2) if high / 2 > low / 2 else 0.5
        return foot - round(share * span)

    rows = [bytearray(width) for _ in range(height)]
    last: int | None = None
    for column in range(width):
        first = column * len(values) // width
        here = values[first : max(first + 1, (column + 1) * len(values) // width)]
        if not all(map(math.isfinite, here)):
            for line in rows:
                line[column] = _NON_FINITE
            last = None
            continue
        ends = [row(value) for value in here]
        joined = ends if last is None else [*ends, last]
        for y in range(min(joined), max(joined) + 1):
            rows[y][column] = _LINE
        last = ends[-1]
    return rows


def encode(rows: Sequence[bytes | bytearray]) -> bytes:
    """The file, by the PNG specification (W3C, third edition, 2025): header, palette, data, end."""
    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), _DEPTH, _INDEXED, 0, 0, 0)
    unfiltered = b"".join(b"\x00" + bytes(row) for row in rows)
    chunks = ((b"IHDR", header), (b"PLTE", _PALETTE), (b"IDAT", zlib.compress(unfiltered, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
