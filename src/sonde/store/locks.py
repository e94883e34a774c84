"""Who may record into a run: an advisory lock that the operating system drops when its holder dies.

Only what writes imports this: readers take no lock, and ask who records of `state.json`.
"""

import errno
import fcntl
import os
import platform
import time
from pathlib import Path

from sonde.core.errors import RunBusy
from sonde.store import opening
from sonde.store.layout import IN_RUN, LOCK

# The doctor's process holds the lock for an instant, to say how a run ended whose process is gone.
_PATIENCE_S = 0.5

# What file systems without locks answer (some network mounts): then nobody is kept out.
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS}


def acquire(run: Path) -> int:
    """Hold the run's lock; the file descriptor that does, to be closed at the end.

    Raises:
        RunBusy: another process records into the run.
    """
    fd = opening.descriptor(run / LOCK, os.O_RDWR | os.O_CREAT, depth=IN_RUN)
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() < deadline:
                time.sleep(0.01)
                continue
            holder = os.pread(fd, 200, 0).decode(errors="replace").strip() or "another process"
            os.close(fd)
            raise RunBusy(
                f"{run} is being recorded by {holder}; give this run a folder of its own, or wait for the other to end."
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                os.close(fd)
                raise
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"process {os.getpid()} on {platform.node()}\n".encode(), 0)
        return fd
