"""Reads a file at a place, without a place of its own: several threads may do so at once."""

import os
import threading

# Of systems that cannot read at a place (Windows): there a file is read by one thread after the other.
_turn = threading.Lock()


def read_at(fd: int, size: int, place: int) -> bytes:
    """At most so many bytes of a file from a place on; fewer where it ends."""
    if hasattr(os, "pread"):
        return os.pread(fd, size, place)
    with _turn:
        os.lseek(fd, place, os.SEEK_SET)
        parts: list[bytes] = []
        while size > 0 and (part := os.read(fd, size)):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def read_into(fd: int, room: memoryview, place: int) -> None:
    """Fill the room from a place on, as far as the file goes."""
    if hasattr(os, "preadv"):
        os.preadv(fd, [room], place)
        return
    data = read_at(fd, len(room), place)
    room[: len(data)] = data
