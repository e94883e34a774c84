"""The doctor's process: messages come in by stdin, answers go out by stdout, a line each.

It judges beside the training without the interpreter that the training needs. It ends when it is told to, when its
input ends, or when the training's process is gone. A training that is gone without a word, as after SIGTERM, cannot say
how it ended: this process says it in the run's state, and gives back the terminal.
"""

import contextlib
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from sonde.core import strict_json
from sonde.monitor.doctor import wire
from sonde.monitor.doctor.parent import Parent
from sonde.monitor.doctor.session import Session

_GONE_S = 5.0  # its pipes are closed before a process has ended; one with much memory takes a while between the two


class _EndOfTraining:
    """Waits until the training's process is gone; then says how it ended, if it has not itself, and ends this process.

    It waits in a thread that is made before this process becomes nice: on a busy machine what is nice may take half a
    minute for it, and whoever looks at the run meanwhile believes that it goes on.
    """

    def __init__(self, parent: Parent, terminated: threading.Event) -> None:
        self._parent, self._terminated = parent, terminated
        self._is_placed = False
        self._terminal: list[Any] | None = None
        self.thread = threading.Thread(target=self._wait, daemon=True)
        self.thread.start()

    def place(self, run: str, terminal: list[Any] | None) -> None:
        """Where the run is, and where on a terminal it is shown."""
        with contextlib.suppress(OSError):  # it may be gone by now
            os.chdir(run)  # so it is found though it is renamed later
            self._is_placed = True
        self._terminal = terminal

    def _wait(self) -> None:
        self._parent.wait()
        try:
            if self._is_placed:
                self._say()
        finally:
            os._exit(0)  # nobody listens; `sonde diagnose` judges what is left

    def _say(self) -> None:
        from sonde.console import panel
        from sonde.store import states

        ending = self._parent.ending(was_terminated=self._terminated.is_set())
        states.conclude(Path(), self._parent.process, *ending)
        if self._terminal is not None:
            with contextlib.suppress(OSError):  # it is gone as well
                panel.give_back(*self._terminal)


def main() -> None:
    """Judge until the end."""
    terminated = threading.Event()
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTTOU):  # meant for the training, which says when it is over
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: terminated.set())
    end = _EndOfTraining(Parent(int(sys.argv[1])), terminated)
    # This thread alone. The training goes first, which it does not before what is only a little nicer.
    os.nice(19)
    out, sys.stdout = sys.stdout, sys.stderr  # a rule of somebody else's may print

    def say(answer: wire.Answer) -> None:
        out.write(strict_json.dumps(answer) + "\n")
        out.flush()

    session = Session(say)
    with contextlib.suppress(BrokenPipeError):
        for message in wire.messages(sys.stdin.buffer):
            if message.kind == wire.PLACE:
                end.place(**message.body)
            session.take(message)
            if message.kind == wire.END:
                out.close()  # by which the training knows that this was all
                os._exit(0)
    end.thread.join(_GONE_S)  # the training may only have let go of us
    os._exit(0)


if __name__ == "__main__":
    main()
