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
import threading
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


class _Conclusion:
    """Says how the training ended, once its process is gone, if that did not say it itself; then ends this process.

    It waits in a thread of its own that is made before this process becomes nice: on a busy machine what is nice may
    take half a minute for it, and whoever looks at the run meanwhile believes that it goes on.
    """

    def __init__(self, parent: Parent, signals: _Signals) -> None:
        self._parent, self._signals = parent, signals
        self._run, self._folder = "", -1
        self._terminal: list[Any] | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def take(self, place: dict[str, Any]) -> None:
        """Where the run is, and where on a terminal it is shown."""
        folder = self._folder
        self._run, self._terminal, self._folder = place["run"], place["terminal"], _hold(place["run"])
        if folder >= 0:
            os.close(folder)

    def wait(self) -> None:
        """Give it time; the training may only have let go of us."""
        self._thread.join(_GONE_S)

    def _work(self) -> None:
        self._parent.wait()
        try:
            if self._run:
                self._conclude()
        finally:
            os._exit(0)  # nobody listens

    def _conclude(self) -> None:
        from sonde.console import panel
        from sonde.store import states

        path = Path(f"/proc/self/fd/{self._folder}")
        run = path if self._folder >= 0 and path.is_dir() else Path(self._run)
        ending = self._parent.ending(was_terminated=self._signals.is_terminated)
        states.conclude(run, self._parent.process, *ending)
        if self._terminal is not None:
            with contextlib.suppress(OSError):  # it is gone as well
                panel.give_back(*self._terminal)


def _hold(run: str) -> int:
    """The folder, opened: so it is found though it was renamed since; −1 where it cannot be."""
    try:
        return os.open(run, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return -1


def main() -> None:
    """Judge until the end."""
    signals, parent = _Signals(), Parent(int(sys.argv[1]))
    conclusion = _Conclusion(parent, signals)
    # This thread alone. The training goes first, which it does not before what is only a little nicer.
    os.nice(19)
    out = sys.stdout

    def say(answer: Answer) -> None:
        out.write(strict_json.dumps(answer) + "\n")
        out.flush()

    consultation = Consultation(say)
    try:
        for message in wire.messages(_Input(sys.stdin.fileno(), parent)):
            if message.kind == wire.PLACE:
                conclusion.take(message.body)
            consultation.take(message)
            if message.kind == wire.END:
                return
    except (_Orphaned, BrokenPipeError):
        conclusion.wait()
    os._exit(0)  # nobody listens


if __name__ == "__main__":
    main()
