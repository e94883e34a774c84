"""However the process ends, its open runs are closed and say how.

Installed while a run is open and taken away with the last one: an `atexit` call and a wrapper around `sys.excepthook`
that only takes a note. A forked child forgets the runs of its parent.

Signals keep their meaning. A handler in Python runs only when the main thread does: one that waits in C (for a lock, a
device, another rank) would not be ended by SIGTERM at all. What was recorded is a second old at most, and the process
that makes the findings says how its training ended.
"""

import atexit
import os
import sys
from types import TracebackType
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

    def install(self) -> None:
        atexit.register(self.at_exit)
        self.noted = (Ending.EXITED, _NOT_CLOSED)
        self.previous_hook, sys.excepthook = sys.excepthook, self.on_exception

    def remove(self) -> None:
        atexit.unregister(self.at_exit)
        if sys.excepthook == self.on_exception:  # else somebody wrapped ours; it goes on to the previous one
            sys.excepthook = self.previous_hook

    def close_all(self, ending: Ending, reason: str) -> None:
        for run in reversed(self.open.copy()):  # what was opened later may still write into what was opened before
            run.end(ending, reason)

    def at_exit(self) -> None:
        self.close_all(*self.noted)

    def on_exception(self, kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        self.noted = describe(kind, value)
        (self.previous_hook or sys.__excepthook__)(kind, value, trace)

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
if hasattr(os, "register_at_fork"):  # Windows forks nothing
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
