"""A recorder with a board behind it."""

from collections.abc import Mapping
from typing import Any, final

from sonde.console.board import Board
from sonde.core.frames import Frame
from sonde.core.records import Recorder


@final
class Tap:
    """Passes everything on to a recorder, and rows to a board as well; itself a `Recorder`."""

    def __init__(self, recorder: Recorder, board: Board) -> None:
        self._recorder, self._board = recorder, board

    def append(self, frame: Frame) -> None:
        """Record a row; it is shown later."""
        self._recorder.append(frame)
        self._board.take(frame)

    def event(self, kind: str, *, step: int | None = None, data: Mapping[str, Any] | None = None) -> None:
        """Record an event."""
        self._recorder.event(kind, step=step, data=data)

    def branch(self, step: int) -> None:
        """Go back."""
        self._recorder.branch(step)

    def flush(self) -> bool:
        """Wait until all that was taken can be read."""
        return self._recorder.flush()

    def close(self) -> None:
        """Let go of the recorder."""
        self._recorder.close()
