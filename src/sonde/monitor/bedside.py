"""The doctor's process: messages come in by stdin, answers go out by stdout, a line each.

It judges beside the training without the interpreter that the training needs. It ends when it is told to, when its
input ends, or when the training's process is gone. A training that is gone without a word, as after SIGTERM, cannot say
how it ended: this process says it in the run's state, and gives back the terminal.
"""

import contextlib
import os
import select
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from sonde.core import strict_json
from sonde.monitor import wire
from sonde.monitor.consultation import Answer, Consultation
from sonde.monitor.parent import Parent

_LOOK_S = 1.0
_GONE_S = 5.0  # its pipes are closed before a process has ended; one with much memory takes a while between the two
_READ_BYTES = 1 << 16


class _Orphaned(Exception):
    pass


class _Input:
    """Stdin, read in full, that ends when the parent does: workers forked from it may hold the other end open."""

    def __init__(self, descriptor: int, parent: Parent) -> None:
        self._descriptor, self._parent = descriptor, parent
        self._watched = [descriptor] if parent.descriptor is None else [descriptor, parent.descriptor]
        self._buffer = bytearray()

    def read(self, size: int, /) -> bytes:
        while len(self._buffer) < size:
            ready, _, _ = select.select(self._watched, [], [], _LOOK_S)
            if self._parent.is_gone():
                raise _Orphaned  # what is left to read is nobody's: `sonde diagnose` judges it
            if self._descriptor not in ready:
                continue
            more = os.read(self._descriptor, _READ_BYTES)
            if not more:
                raise _Orphaned
            self._buffer += more
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken


class _Signals:
    """Those that are meant for the training, which says when it is over."""

    def __init__(self) -> None:
        self.is_terminated = False
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTTOU):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.is_terminated = True


def main() -> None:
    """Judge until the end."""
    signals, parent = _Signals(), Parent(int(sys.argv[1]))
    os.nice(19)  # the training goes first, which it does not before a process that is only a little nicer
    out = sys.stdout

    def say(answer: Answer) -> None:
        out.write(strict_json.dumps(answer) + "\n")
        out.flush()

    consultation, place, folder = Consultation(say), None, -1
    try:
        for message in wire.messages(_Input(sys.stdin.fileno(), parent)):
            if message.kind == wire.PLACE:
                place = message.body
                folder = _hold(place["run"], folder)
            consultation.take(message)
            if message.kind == wire.END:
                return
    except (_Orphaned, BrokenPipeError):
        if place is not None:
            _conclude(_held(folder, place["run"]), place["terminal"], parent, was_terminated=signals.is_terminated)
    os._exit(0)  # nobody listens


def _hold(run: str, before: int) -> int:
    """The folder, opened: so it is found though it was renamed since; −1 where it cannot be."""
    if before >= 0:
        os.close(before)
    try:
        return os.open(run, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return -1


def _held(folder: int, run: str) -> Path:
    path = Path(f"/proc/self/fd/{folder}")
    return path if folder >= 0 and path.is_dir() else Path(run)


def _conclude(run: Path, terminal: list[Any] | None, parent: Parent, *, was_terminated: bool) -> None:
    """Say how the training ended that did not say it itself."""
    if not parent.is_gone(_GONE_S):
        return  # it only let go of us
    from sonde.console import panel
    from sonde.store import states

    states.conclude(run, parent.process, *parent.ending(was_terminated=was_terminated))
    if terminal is not None:
        with contextlib.suppress(OSError):  # it is gone as well
            panel.give_back(*terminal)


if __name__ == "__main__":
    main()
