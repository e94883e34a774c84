"""Append to a JSON-lines file that may end in half a line."""

import os
from pathlib import Path

from sonde.store import opening


class Appender:
    """Appends whole lines; what the disk refused is kept and goes first the next time, so that none is lost."""

    def __init__(self, path: Path, *, depth: int = 1) -> None:
        self._path, self._depth = path, depth
        self._fd = -1
        self._rest = b""

    def move(self, path: Path) -> None:
        """Go on in another file, with what was not written yet."""
        self.close()
        self._path = path

    def queue(self, lines: bytes) -> None:
        """Take lines that end in a newline; `drain` writes them."""
        self._rest += lines

    def drain(self) -> None:
        """Write what is queued.

        Raises:
            OSError: the disk refused; calling again goes on where this stopped.
        """
        if not self._rest:
            return
        if self._fd < 0:
            self._fd = opening.descriptor(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, depth=self._depth)
            size = os.fstat(self._fd).st_size
            if size and os.pread(self._fd, 1, size - 1) != b"\n":  # the last writer died inside a line
                self._rest = b"\n" + self._rest
        while self._rest:
            self._rest = self._rest[os.write(self._fd, self._rest) :]

    def sync(self) -> None:
        """Ask the disk to keep it."""
        if self._fd >= 0:
            os.fsync(self._fd)

    def close(self) -> None:
        """Let go of the file; `drain` opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
