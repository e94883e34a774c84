"""The process that started this one: whether it is gone, and how it ended."""

import contextlib
import fcntl
import os
import select
import signal
import struct
import time
from pathlib import Path

from sonde.core.records import Ending

_LOOK_S = 0.5  # where the system does not tell when a process ends
_NOT_CLOSED = "the process ended without closing the run"

# `PIDFD_GET_INFO` of Linux (6.15 or newer says how a process ended, also once somebody has waited for it).
_INFO = struct.Struct("<Q52xi")  # which fields are meant, and the last field: the status
_INFO_OF_EXIT = 1 << 3
_GET_INFO = 3 << 30 | _INFO.size << 16 | 0xFF << 8 | 11
_STATUS_FIELD = 49  # of `/proc/<process>/stat`, behind the name


class Parent:
    """The parent, living or not.

    Args:
        process: Its number.
    """

    def __init__(self, process: int) -> None:
        self.process = process
        self._descriptor: int | None = None
        if os.getppid() == process:
            with contextlib.suppress(AttributeError, OSError):  # not on Linux, or on an old one
                self._descriptor = os.pidfd_open(process)

    def wait(self) -> None:
        """Until it is gone."""
        if self._descriptor is not None:
            select.select([self._descriptor], [], [])
            return
        while os.getppid() == self.process:
            time.sleep(_LOOK_S)

    def ending(self, *, was_terminated: bool) -> tuple[Ending, str]:
        """How it ended, now that it is gone, as far as the system says it.

        Args:
            was_terminated: Whether SIGTERM came to this process, as it does where it is sent to a group.
        """
        status = self._status()
        if status is None:
            return (Ending.TERMINATED, "SIGTERM") if was_terminated else (Ending.DIED, _NOT_CLOSED)
        if os.WIFEXITED(status):
            code = os.WEXITSTATUS(status)
            return Ending.EXITED, f"exit status {code}" if code else _NOT_CLOSED
        number = os.WTERMSIG(status)
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        return Ending.TERMINATED if number == signal.SIGTERM else Ending.DIED, name

    def _status(self) -> int | None:
        """As `os.wait` gives it to the one who may wait for the process."""
        with contextlib.suppress(OSError, ValueError):
            stat = Path(f"/proc/{self.process}/stat").read_text(encoding="utf-8", errors="replace")
            state, *fields = stat.rpartition(")")[2].split()
            if state == "Z" and len(fields) >= _STATUS_FIELD:  # nobody has waited for it yet
                return int(fields[_STATUS_FIELD - 1])
        if self._descriptor is None:
            return None
        info = bytearray(_INFO.pack(_INFO_OF_EXIT, 0))
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._descriptor, _GET_INFO, info)
            known, status = _INFO.unpack(info)
            return status if known & _INFO_OF_EXIT else None
        return None
