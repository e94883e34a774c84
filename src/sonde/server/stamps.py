"""What tells whether a run's files have changed: their identities, lengths and times."""

import os
from pathlib import Path
from typing import NamedTuple

from sonde.store import layout
from sonde.store.notes import NOTES

FileStamp = tuple[int, int, int] | None
"""Of a file: its number, its length and when it was written; None where it is not there."""


class RunStamp(NamedTuple):
    """Of the small files of a run; of one that is being recorded the state is written about once a second."""

    info: FileStamp
    state: FileStamp
    events: FileStamp
    notes: FileStamp


def file_stamp(path: str | Path) -> FileStamp:
    """The stamp of a file; of a link its own."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def run_stamp(run: Path) -> RunStamp:
    """The stamp of a run."""
    folder = str(run)
    return RunStamp(*(file_stamp(f"{folder}/{name}") for name in (layout.RUN, layout.STATE, layout.EVENTS, NOTES)))
