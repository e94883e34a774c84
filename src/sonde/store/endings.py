"""However the process ends, its open runs are closed and say how.

Installed while a run is open and taken away with the last one: an `atexit` call, a wrapper around `sys.excepthook` that
only takes a note, and a SIGTERM handler where the program has none of its own. A forked child forgets the runs of its
parent.
"""

import atexit
import contextlib
import os
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any, Protocol

from sonde.core.records import Ending
from sonde.store.environment import redactor

_NOT_CLOSED = "the process ended without closing the run"


class Endable(Protocol):
    """An open run."""

    def end(self, ending: Ending, reason: str) -> None:
        """Close it, within a few seconds at most."""

    def forget(self) -> None:
        """Let go of files and threads that belong to the parent process."""


class _Watch:
    """The hooks of this process."""

    def __init__(self) -> None:
        self.open: list[Endable] = []
        self.noted: tuple[Ending, str] = (Ending.EXITED, _NOT_CLOSED)
        self.previous_hook: Any = None
        self.has_signal = False

    def install(self) -> None:
        atexit.register(self.at_exit)
        self.noted = (Ending.EXITED, _NOT_CLOSED)
        self.previous_hook, sys.excepthook = sys.excepthook, self.on_exception
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self.on_sigterm)
            self.has_signal = True

    def remove(self) -> None:
        atexit.unregister(self.at_exit)
        if sys.excepthook == self.on_exception:  # else somebody wrapped ours; it goes on to the previous one
            sys.excepthook = self.previous_hook
        if self.has_signal:
            with contextlib.suppress(ValueError):  # not the main thread: the handler stays and finds nothing to close
                if signal.getsignal(signal.SIGTERM) == self.on_sigterm:
                    signal.signal(signal.SIGTERM, signal.SIG_DFL)
                self.has_signal = False

    def close_all(self, ending: Ending, reason: str) -> None:
        for run in reversed(self.open.copy()):  # what was opened later may still write into what was opened before
            run.end(ending, reason)

    def at_exit(self) -> None:
        self.close_all(*self.noted)

    def on_exception(self, kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        self.noted = describe(kind, value)
        (self.previous_hook or sys.__excepthook__)(kind, value, trace)

    def on_sigterm(self, number: int, _: FrameType | None) -> None:
        # The interrupted code may hold a lock that closing needs, so another thread closes while it goes on; then the
        # signal is sent again with its default meaning, so that whoever waits for this process sees how it ended.
        signal.signal(number, signal.SIG_DFL)
        self.has_signal = False

        def close_and_go() -> None:
            try:
                self.close_all(Ending.TERMINATED, "SIGTERM")
            finally:
                os.kill(os.getpid(), number)

        threading.Thread(target=close_and_go, name="sonde-sigterm", daemon=True).start()

    def after_fork_in_child(self) -> None:
        forgotten, self.open = self.open, []
        if forgotten:
            self.remove()
        for run in forgotten:
            run.forget()


def describe(kind: type[BaseException], value: BaseException | None) -> tuple[Ending, str]:
    """How a run ends that an exception leaves.

    Example:
        >>> describe(ValueError, ValueError("no such layer"))
        (<Ending.CRASHED: 'crashed'>, 'ValueError: no such layer')
    """
    if issubclass(kind, KeyboardInterrupt):
        return Ending.INTERRUPTED, "Ctrl-C"
    if issubclass(kind, SystemExit):
        code = getattr(value, "code", None)
        return (
            (Ending.FINISHED, "")
            if code in (None, 0)
            else (Ending.EXITED, redactor().text(f"exit status {code}")[:500])
        )
    return Ending.CRASHED, redactor().text(f"{kind.__name__}: {value}")[
        :500
    ]  # first: half a secret is not known as one


_watch = _Watch()
os.register_at_fork(after_in_child=_watch.after_fork_in_child)


def watch(run: Endable) -> None:
    """Close the run when the process ends."""
    if not _watch.open:
        _watch.install()
    _watch.open.append(run)


def watched() -> tuple[Endable, ...]:
    """The runs of this process that are open."""
    return tuple(_watch.open)


def unwatch(run: Endable) -> None:
    """The run is closed."""
    if run in _watch.open:
        _watch.open.remove(run)
        if not _watch.open:
            _watch.remove()
