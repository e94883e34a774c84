"""What was not written stays in a stream's buffer, and fails again when the interpreter flushes it at the end."""

import contextlib
import io
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any


@contextlib.contextmanager
def no_residue(also: Iterable[Any] = ()) -> Iterator[None]:
    """Around code of others that writes our text to stderr: what it could not write is taken out of the buffer again.

    A buffer that holds something that cannot be written already belongs to somebody else, and stays as it is.

    Args:
        also: Further streams that may be written to.
    """
    streams = {id(stream): stream for stream in (sys.stderr, sys.__stderr__, *also)}
    clean = [stream for stream in streams.values() if type(stream) is io.TextIOWrapper and _is_empty(stream)]
    try:
        yield
    finally:
        for stream in clean:
            flush_or_discard(stream)


def flush_or_discard(stream: Any) -> None:
    """Empty the buffer of a stream that is Python's own; what cannot be written is lost. Never raises."""
    if type(stream) is io.TextIOWrapper and not _is_empty(stream):
        with contextlib.suppress(OSError, ValueError):
            _discard(stream)


def _is_empty(stream: io.TextIOWrapper) -> bool:
    """Whether nothing is left in its buffer once it was flushed."""
    try:
        stream.flush()
    except (OSError, ValueError):
        return False
    return True


def _discard(stream: io.TextIOWrapper) -> None:
    """Flush into nowhere: a buffer cannot be emptied otherwise. Nothing else that is written there now would arrive."""
    descriptor = stream.fileno()
    try:
        kept, is_inheritable = os.dup(descriptor), os.get_inheritable(descriptor)
    except OSError:  # it is closed
        _discard_closed(stream, descriptor)
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, descriptor, is_inheritable)
        try:
            stream.flush()
        finally:
            os.dup2(kept, descriptor, is_inheritable)
    finally:
        os.close(nowhere)
        os.close(kept)


def _discard_closed(stream: io.TextIOWrapper, descriptor: int) -> None:
    """The same where there is no such descriptor; `open` never gives us one that a file has got meanwhile."""
    taken: list[int] = []
    try:
        while not taken or taken[-1] < descriptor:
            taken.append(os.open(os.devnull, os.O_WRONLY))
        if taken[-1] == descriptor:
            stream.flush()
    finally:
        for one in taken:
            os.close(one)
