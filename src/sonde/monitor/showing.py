"""What a person at the terminal sees of a watched training."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import final

from sonde.console import terminals
from sonde.console.board import Board
from sonde.console.display import Display
from sonde.console.layer_tables import LayerTables
from sonde.console.tap import Tap
from sonde.console.terminals import Wanted
from sonde.core.findings import Finding
from sonde.core.records import Recorder
from sonde.monitor import ranks


@final
class Showing:
    """Prints and shows on stderr, as far as that is wanted and fits where we are; on the first rank only.

    Args:
        wanted: How.
        run: The run's folder.
        findings: Gives those of the training so far; None where nobody looks for any.
        interval_s: Seconds between two lines.
        total_steps: How many there will be, where that is known.
        total_epochs: Likewise.
    """

    def __init__(
        self,
        wanted: Wanted,
        run: Path,
        findings: Callable[[], Sequence[Finding] | None],
        *,
        interval_s: float,
        total_steps: int | None,
        total_epochs: int | None,
    ) -> None:
        mode = terminals.choose(
            wanted, stream=sys.stderr, environ=os.environ, rank=ranks.rank(), world_size=ranks.world_size()
        )
        self._board = Board(str(run), began=time.time(), total_steps=total_steps, total_epochs=total_epochs)
        self._display = None if mode == "quiet" else Display(self._board, findings, mode=mode, interval_s=interval_s)
        self._tables = LayerTables(self.say) if mode == "verbose" else None

    def before(self, recorder: Recorder) -> Recorder:
        """The recorder, with us told what goes through it."""
        if self._display is None:
            return recorder
        return Tap(recorder, self._board.take, *([] if self._tables is None else [self._tables.take]))

    def say(self, text: str) -> None:
        """Print lines soon; returns at once."""
        if self._display is not None:
            self._display.say(text)

    def close(self, text: str = "") -> None:
        """Print what is left and then this, and give the terminal back."""
        if self._tables is not None:
            self._tables.rest()
        if self._display is not None:
            self._display.close(text)

    @property
    def place(self) -> tuple[str, int] | None:
        """The terminal on which something stands that must be cleared at the end, and in how many of its last rows."""
        return None if self._display is None else self._display.place

    def forget(self) -> None:
        """After a fork: the terminal is the parent's."""
        if self._display is not None:
            self._display.forget()
