"""Alerts in a text file."""

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from sonde.alerts.channels.channel import Delivered, Outcome, Refused, TryAgain
from sonde.alerts.messages import plain
from sonde.alerts.notices import Bulletin

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


@dataclass(frozen=True, kw_only=True, slots=True)
class LogFile:
    """Appends a line a finding; several processes may share the file.

    A full disk or a file system that does not answer is tried again; a path that cannot be written is not, nor what is
    no regular file: a link may lead to a file that somebody else obeys, a pipe waits for a reader.

    Args:
        file: The path; its folder is made where it is missing, the file for the user alone.
    """

    file: str

    def __post_init__(self) -> None:
        if not self.file:
            raise ValueError("`file` must be the path of a file, got an empty text.")

    def send(self, bulletin: Bulletin) -> Outcome:
        """Append it."""
        path = Path(self.file)
        entry = "".join(f"{line}\n" for line in plain.log_lines(bulletin)).encode()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(path, _FLAGS, 0o600)
            try:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    return Refused(f"{path} cannot be written: it is no regular file")
                written = os.write(fd, entry)  # in one go: entries of several processes do not mix
            finally:
                os.close(fd)
        except (PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError) as error:
            return Refused(f"{path} cannot be written: {os.strerror(error.errno or 0)}")
        except OSError as error:
            if error.errno == errno.ELOOP:
                return Refused(f"{path} cannot be written: it is a link; name the file itself")
            if error.errno == errno.ENXIO:
                return Refused(f"{path} cannot be written: it is no regular file")
            return TryAgain(f"{path} cannot be written: {os.strerror(error.errno or 0)}")
        return Delivered() if written == len(entry) else TryAgain(f"{path} took only a part: the disk may be full")
