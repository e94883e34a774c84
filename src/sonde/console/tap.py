"""A recorder with somebody behind it who is shown its rows."""

from collections.abc import Callable, Mapping
from typing import Any, final

from sonde.core.frames import Frame
from sonde.core.records import Recorder


@final
class Tap:
    """Passes everything on to a recorder, and rows to others as well; itself a `Recorder`."""

    def __init__(self, recorder: Recorder, *others: Callable[[Frame], None]) -> None:
        self._recorder, self._others = recorder, others

    def append(self, frame: Frame) -> None:
        """Record a row; it is shown later."""
        self._recorder.append(frame)
        for take in self._others:
            take(frame)

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
