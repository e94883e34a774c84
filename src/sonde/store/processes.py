"""Which process records a run, and whether it is still there."""

import contextlib
import os
import platform
from pathlib import Path
from typing import Any

import psutil

_SPACE = Path("/proc/self/ns/pid")
_SLACK_S = 5.0  # by which the system's clock and the one of a process's birth may differ


def here() -> dict[str, Any]:
    """How `state.json` says who records: the machine, the process, and on Linux in which numbering of processes."""
    return {"host": platform.node(), "process": os.getpid(), "space": space()}


def space() -> str | None:
    """The numbering of processes that this one is in: containers have their own. None where there is but one."""
    with contextlib.suppress(OSError):
        return str(_SPACE.readlink())
    return None


def is_alive(process: int, *, before: float) -> bool:
    """Whether a process of this machine lives, and is not a later one that was given the same number.

    Args:
        process: Its number.
        before: A time, UTC seconds, at which it was there.
    """
    try:
        found = psutil.Process(process)
        is_zombie = found.status() == psutil.STATUS_ZOMBIE
        return not is_zombie and found.create_time() <= before + _SLACK_S
    except psutil.AccessDenied:  # somebody else's; it is there
        return True
    except (psutil.Error, OSError, ValueError, OverflowError):
        return False
