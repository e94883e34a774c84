"""Lines on a stream of the training's process."""

import contextlib
import io
import select
from typing import Any

from sonde.streams.residue import no_residue

_PATIENCE_S = 1.0


def print_or_drop(text: str, stream: Any) -> None:
    """Print lines at once; drop what cannot be written. Never raises, and leaves nothing of ours in a buffer.

    The interpreter flushes its streams at the end, and where that fails (the terminal is gone, the descriptor is
    closed, the disk is full) the exit status becomes 120. So the lines go past the buffer of a stream that is Python's
    own. What others have in that buffer goes first; where it cannot, it stays, and our lines are dropped.

    Characters that the stream's encoding does not have are replaced.

    Args:
        text: Lines, without the last end of line.
        stream: Any; None, a closed one or an object with a `write` of its own is fine.
    """
    if stream is None:
        return
    with contextlib.suppress(Exception):  # closed, gone, or somebody's own that fails
        if type(stream) is io.TextIOWrapper and type(stream.buffer) in (io.BufferedWriter, io.FileIO):
            stream.flush()
            raw = stream.buffer if isinstance(stream.buffer, io.FileIO) else stream.buffer.raw
            _write_all(raw, _encoded(f"{text}\n", stream))
        else:
            with no_residue():
                stream.write(f"{text}\n")
                stream.flush()


def _encoded(text: str, stream: io.TextIOWrapper) -> bytes:
    try:
        return text.encode(stream.encoding, stream.errors or "strict")
    except UnicodeEncodeError:
        return text.encode(stream.encoding, "replace")


def _write_all(raw: io.RawIOBase, data: bytes) -> None:
    left = memoryview(data)
    while left:
        num = raw.write(left)
        if num is not None:
            left = left[num:]
        elif not select.select([], [raw], [], _PATIENCE_S)[1]:  # somebody made it non-blocking
            return
