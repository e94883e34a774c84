"""The bottom rows of a terminal, kept apart from all that is printed there.

Whatever others print scrolls in the rows above: the terminal itself is told to scroll only these (its *scrolling
region*, DECSTBM, which every terminal since the VT100 has). So nobody's stream is redirected or wrapped, nor need
anybody know of us: bars that go back to the beginning of their line or some lines up, what C libraries print, and other
processes stay whole. A drawing is one `write`, which terminals do not mix with that of others, and leaves cursor and
colours as they were.
"""

import contextlib
import os
import select
import threading
from collections.abc import Sequence
from typing import final

from sonde.console import terminals

LEAST_ROWS = 8
"""That are left to others; on a terminal that is lower nothing is drawn."""
LEAST_COLUMNS = 24

_SAVE, _RESTORE = "\x1b7", "\x1b8"
_WHOLE = "\x1b[r"
_DOWN = "\x1bD"  # keeps the column, and scrolls at the bottom
_PATIENCE_S = 1.0

_taken: set[tuple[int, int]] = set()
_taking = threading.Lock()


@final
class Panel:
    """Some rows at the bottom of a terminal; one at a time on each.

    Args:
        descriptor: Of the terminal.
        height: Rows.
        encoding: Of the terminal; what it cannot say becomes a question mark.
    """

    def __init__(self, descriptor: int, *, height: int, encoding: str = "utf-8") -> None:
        self._descriptor, self._height, self._encoding = descriptor, height, encoding
        self._placed: os.terminal_size | None = None
        self._device = _identity(descriptor)
        try:
            self._name = os.ttyname(descriptor)
        except OSError:  # it lies outside of what this process can see
            self._name = ""
        with _taking:
            self.is_ours = self._device not in _taken
            """Whether no other panel is there."""
            if self.is_ours:
                _taken.add(self._device)

    @property
    def place(self) -> tuple[str, int] | None:
        """The terminal, and how many of its last rows are taken at present; None where none are."""
        return (self._name, self._height) if self._name and self._placed is not None else None

    def room(self) -> os.terminal_size | None:
        """The terminal's size; None where nothing can be drawn now: it is too small, or the shell has it.

        Raises:
            OSError: there is no terminal any more.
        """
        size = os.get_terminal_size(self._descriptor)
        if not self.is_ours or not terminals.is_foreground(self._descriptor):
            return None
        if size.lines < self._height + LEAST_ROWS or size.columns < LEAST_COLUMNS:
            self._withdraw()
            return None
        return size

    def draw(self, rows: Sequence[str], size: os.terminal_size) -> None:
        """Show these rows, as wide as `size` at most.

        Raises:
            OSError: there is no terminal any more.
        """
        moved = "" if size == self._placed else placed(size, self._height, anew=self._placed is not None)
        self._placed = size
        self._write(moved + drawn(rows, size, self._height))

    def clear(self) -> None:
        """Give the rows back, as if nothing had been there."""
        with contextlib.suppress(OSError):
            if terminals.is_foreground(self._descriptor):
                self._withdraw()
        with _taking:
            if self.is_ours:
                _taken.discard(self._device)
                self.is_ours = False

    def _withdraw(self) -> None:
        if self._placed is not None:
            self._placed = None
            self._write(cleared(os.get_terminal_size(self._descriptor), self._height))

    def _write(self, text: str) -> None:
        left = memoryview(text.encode(self._encoding, "replace"))
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:  # somebody made it so
                if not select.select([], [self._descriptor], [], _PATIENCE_S)[1]:
                    return


def placed(size: os.terminal_size, height: int, *, anew: bool) -> str:
    """What makes room at the bottom; `anew` where the panel was somewhere else before, as the size was another."""
    away = f"{_SAVE}{_WHOLE}{_RESTORE}\x1b[J" if anew else ""
    return f"{away}{_DOWN * height}\x1b[{height}A"


def drawn(rows: Sequence[str], size: os.terminal_size, height: int) -> str:
    """What shows the rows. The region is said each time: somebody may have reset the terminal."""
    top = size.lines - height
    lines = "".join(f"\x1b[{top + 1 + i};1H\x1b[0m\x1b[2K{row}" for i, row in enumerate(rows[:height]))
    return f"{_SAVE}\x1b[1;{top}r{lines}\x1b[0m{_RESTORE}"


def cleared(size: os.terminal_size, height: int) -> str:
    """What gives the rows back."""
    return f"{_SAVE}{_WHOLE}\x1b[{max(1, size.lines - height + 1)};1H\x1b[0m\x1b[J{_RESTORE}"


def give_back(terminal: str, height: int) -> None:
    """Clear the rows that a process which is gone has left on a terminal.

    Raises:
        OSError: there is no terminal any more.
    """
    descriptor = os.open(terminal, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.write(descriptor, cleared(os.get_terminal_size(descriptor), height).encode())
    finally:
        os.close(descriptor)


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_rdev
