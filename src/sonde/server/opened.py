"""The runs that were asked for last, kept open: their lists of tags are read once."""

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import final

from sonde.server.remembered import Remembered
from sonde.server.stamps import FileStamp, file_stamp
from sonde.store import layout
from sonde.store.reader import Run

_MOST = 32
_SHARE = 0.05  # of the time that listing the tags of a run which is being recorded may take


@final
class OpenRun:
    """A run that is open, for one request at a time."""

    def __init__(self, path: Path) -> None:
        self.lock = threading.Lock()
        self.run = Run(path)
        self._tags: list[str] = []
        self._stamp: FileStamp = None
        self._valid_until = -1.0

    def tags(self) -> list[str]:
        """All tags that have a value; of a wide run that is being recorded they may be some seconds old."""
        began = time.monotonic()
        stamp = file_stamp(self.run.path / layout.STATE)
        if self._valid_until < 0 or (stamp != self._stamp and began > self._valid_until):
            self._tags, self._stamp = self.run.tags(), stamp
            ended = time.monotonic()
            self._valid_until = ended + (ended - began) / _SHARE
        return self._tags


@final
class OpenRuns:
    """Opens runs, and keeps the last."""

    def __init__(self) -> None:
        self._kept: Remembered[OpenRun] = Remembered(_MOST)

    @contextlib.contextmanager
    def use(self, path: Path) -> Iterator[OpenRun]:
        """The run of a folder, for as long as the block lasts.

        Raises:
            StoreError: it cannot be read.
        """
        opened = self._kept.get(path, file_stamp(path / layout.RUN), lambda: OpenRun(path))
        with opened.lock:
            yield opened
