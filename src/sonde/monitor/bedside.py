"""The doctor's process: messages come in by stdin, answers go out by stdout, a line each.

It judges beside the training without the interpreter that the training needs. It ends when it is told to, when its
input ends, or when the training's process is gone.
"""

import contextlib
import os
import select
import signal
import sys

from sonde.core import strict_json
from sonde.monitor import wire
from sonde.monitor.consultation import Answer, Consultation

_LOOK_S = 0.5  # where the kernel does not tell when a process ends
_READ_BYTES = 1 << 16


class _Orphaned(Exception):
    pass


class _Input:
    """Stdin, read in full, that ends when the parent does: workers forked from it may hold the other end open."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._parent = descriptor, os.getppid()
        self._ends: list[int] = []
        """Can be read once the parent has ended."""
        with contextlib.suppress(AttributeError, OSError):  # not Linux, or an old or a guarded one
            self._ends.append(os.pidfd_open(self._parent))
        self._buffer = bytearray()

    def read(self, size: int, /) -> bytes:
        while len(self._buffer) < size:
            ready, _, _ = select.select([self._descriptor, *self._ends], [], [], _LOOK_S)
            if any(end in ready for end in self._ends) or os.getppid() != self._parent:
                raise _Orphaned  # what is left to read is nobody's: `sonde diagnose` judges it
            if not ready:
                continue
            more = os.read(self._descriptor, _READ_BYTES)
            if not more:
                break
            self._buffer += more
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken


def main() -> None:
    """Judge until the end."""
    # They are meant for the training, which says when it is over.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.nice(19)  # the training goes first, which it does not before a process that is only a little nicer
    out = sys.stdout

    def say(answer: Answer) -> None:
        out.write(strict_json.dumps(answer) + "\n")
        out.flush()

    consultation = Consultation(say)
    try:
        for message in wire.messages(_Input(sys.stdin.fileno())):
            consultation.take(message)
            if message.kind == wire.END:
                return
    except (_Orphaned, BrokenPipeError):
        os._exit(0)  # nobody listens


if __name__ == "__main__":
    main()
