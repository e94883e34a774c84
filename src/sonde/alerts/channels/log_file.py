"""Alerts in a text file."""

import os
from dataclasses import dataclass
from pathlib import Path

from sonde.alerts.channels.channel import Delivered, Outcome, Refused, TryAgain
from sonde.alerts.messages import plain
from sonde.alerts.notices import Bulletin


@dataclass(frozen=True, kw_only=True, slots=True)
class LogFile:
    """Appends each bulletin as plain text; several processes may share the file.

    A full disk or a file system that does not answer is tried again; a path that cannot be written is not.

    Args:
        file: The path; its folder is made where it is missing.
    """

    file: str

    def __post_init__(self) -> None:
        if not self.file:
            raise ValueError("`file` must be the path of a file, got an empty text.")

    def send(self, bulletin: Bulletin) -> Outcome:
        """Append it."""
        path = Path(self.file)
        entry = (plain.text(bulletin) + "\n").encode()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab", buffering=0) as file:
                written = file.write(entry)  # in one go: entries of several processes do not mix
        except (PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError) as error:
            return Refused(f"{path} cannot be written: {os.strerror(error.errno or 0)}")
        except OSError as error:
            return TryAgain(f"{path} cannot be written: {os.strerror(error.errno or 0)}")
        return Delivered() if written == len(entry) else TryAgain(f"{path} took only a part: the disk may be full")
