"""Who records into a run: an advisory lock that the operating system drops when its holder dies."""

import errno
import fcntl
import os
import time
from pathlib import Path

from sonde.core.errors import RunBusy
from sonde.store import opening
from sonde.store.layout import IN_RUN, LOCK

# A reader that looks whether the run is live holds the lock for an instant.
_PATIENCE_S = 0.5

# What file systems without locks answer (some network mounts): then the age of state.json decides.
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
        os.pwrite(fd, f"process {os.getpid()} on {os.uname().nodename}\n".encode(), 0)
        return fd


def is_held(run: Path) -> bool | None:
    """Whether somebody holds the lock; None where the file system cannot tell."""
    try:
        fd = opening.descriptor(run / LOCK, depth=IN_RUN)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    else:
        return False
    finally:
        os.close(fd)
