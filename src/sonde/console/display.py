"""Shows a training while it runs, on a thread of its own."""

import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

from sonde.console import bars, terminals
from sonde.console.board import Board
from sonde.console.drawing import ROWS, line, rows
from sonde.console.glyphs import ASCII, glyphs_for
from sonde.console.panel import Panel
from sonde.console.terminals import Mode
from sonde.console.view import View
from sonde.core.findings import Finding
from sonde.streams.logs import logger

if TYPE_CHECKING:
    from sonde.console.painter import Painter

_log = logger("sonde.console")

# A drawing takes the interpreter from the training: half a millisecond, of ten thousand layers five.
_REFRESH_S = 0.5
_SHARE = 0.002
_SILENT_REFRESH_S = 5.0
_START_S = 2.0  # a training that is over by then needs no panel
_MOST_WAITING = 1000
_CLOSE_S = 2.0


@final
class Display:
    """Prints what is said, and shows a training: live at the bottom of a terminal, or in a line now and then.

    All is written to stderr, by one thread, which nobody waits for; a terminal that is closed, blocked or slow delays
    and breaks nothing.

    Args:
        board: What is shown.
        findings: Gives those of the training so far; None where nobody looks for any.
        mode: Live, or lines for all others.
        interval_s: Seconds between two lines, above 0.
        start_s: Seconds before the first live view.
    """

    def __init__(
        self,
        board: Board,
        findings: Callable[[], Sequence[Finding] | None],
        *,
        mode: Mode,
        interval_s: float = 30.0,
        start_s: float = _START_S,
    ) -> None:
        self._board, self._findings = board, findings
        self._interval_s = interval_s
        self._said: deque[str] = deque(maxlen=_MOST_WAITING)
        self._turn = threading.Condition()
        self._is_closing = self._is_forgotten = False
        self._panel: Panel | None = None
        self._painter: Painter | None = None
        self._glyphs = ASCII
        self._drawn: tuple[Any, ...] = ()
        self._drawn_at = 0.0
        if mode == "live":
            self._begin_panel()
        self._due = time.monotonic() + (self._interval_s if self._panel is None else start_s)
        self._thread = threading.Thread(target=self._work, name="sonde-console", daemon=True)
        self._thread.start()

    def say(self, text: str) -> None:
        """Print lines soon; returns at once."""
        with self._turn:
            self._said.append(text)
            self._turn.notify()

    def close(self, text: str = "", *, timeout_s: float = _CLOSE_S) -> None:
        """Print what is left and then this; give the terminal back. Takes no longer than this time."""
        if self._is_forgotten:
            return
        with self._turn:
            if text:
                self._said.append(text)
            self._is_closing = True
            self._turn.notify()
        self._thread.join(timeout_s)

    @property
    def place(self) -> tuple[str, int] | None:
        """The terminal on which something stands that must be cleared at the end, and in how many of its last rows."""
        panel = self._panel
        return None if panel is None else panel.place

    def forget(self) -> None:
        """After a fork: the terminal is the parent's to draw on."""
        self._is_forgotten = True

    def _begin_panel(self) -> None:
        from sonde.console.painter import Painter

        try:
            panel = Panel(sys.stderr.fileno(), height=ROWS, encoding=sys.stderr.encoding)
        except (AttributeError, OSError, ValueError):
            return
        if panel.is_ours:
            self._panel, self._painter = panel, Painter(os.environ)
            self._glyphs = glyphs_for(sys.stderr.encoding)

    def _work(self) -> None:
        is_closing = False
        while not is_closing:
            with self._turn:
                wait_s = max(0.0, self._due - time.monotonic())
                self._turn.wait_for(lambda: self._said or self._is_closing, min(wait_s, threading.TIMEOUT_MAX))
                said, is_closing = list(self._said), self._is_closing
                self._said.clear()
            if is_closing:
                self._end_panel()
            for text in said:
                self._write(text)
            if not is_closing and time.monotonic() >= self._due:
                self._show()

    def _show(self) -> None:
        try:
            if self._panel is not None:
                began_s = time.thread_time()
                self._due = time.monotonic() + _REFRESH_S
                self._draw(self._panel)
                self._due = max(self._due, time.monotonic() + (time.thread_time() - began_s) / _SHARE)
            else:
                self._due = time.monotonic() + self._interval_s
                if self._board.num_steps:
                    self._write(f"Sonde: {line(self._view())}")
        except Exception as error:  # the training has nothing to do with it
            _log.warning("the training is not shown any more: %r", error, exc_info=error)
            self._due = math.inf
            self._end_panel()

    def _view(self) -> View:
        return self._board.view(time.time(), self._findings())

    def _draw(self, panel: Panel) -> None:
        if not self._board.num_steps:
            return
        try:
            size = panel.room()
            state = (size, self._board.num_steps)
            if size is None or (state == self._drawn and time.monotonic() - self._drawn_at < _SILENT_REFRESH_S):
                return
            assert self._painter is not None
            # A character in the last column makes some terminals begin another row.
            shown = rows(self._view(), width=size.columns - 1, glyphs=self._glyphs)
            panel.draw([self._painter(row) for row in shown], size)
            self._drawn, self._drawn_at = state, time.monotonic()
        except OSError:  # the terminal is gone
            self._end_panel()
            self._due = time.monotonic() + self._interval_s

    def _end_panel(self) -> None:
        if self._panel is not None:
            self._panel.clear()
            self._panel = None

    def _write(self, text: str) -> None:
        stream = sys.stderr
        try:
            if not stream.isatty() or terminals.may_write(stream.fileno()):
                bars.write(text, stream)
        except Exception as error:  # there is none, it is closed, its terminal is gone, a bar is broken
            _log.debug("not printed: %r: %s", error, text)
