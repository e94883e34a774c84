"""Makes this process one of a system without POSIX's own: no locks, no links refused by flags, no `dir_fd`, no `pread`.

It stands in for Windows as far as names of the standard library go; what Windows itself does is untested. Import it
before `sonde`.
"""

import os
import sys
from typing import Any

import numpy  # noqa: F401  # these have their own ways there
import psutil  # noqa: F401
import pyarrow.parquet  # noqa: F401

GONE = (
    *("O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC", "O_NONBLOCK", "O_NOCTTY", "SEEK_HOLE", "pread", "preadv", "pwrite"),
    *("uname", "sysconf", "geteuid", "getuid", "fork", "register_at_fork", "sched_getaffinity", "mkfifo", "openpty"),
)
MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "pty", "tty")


def _by_name_only(function: Any) -> Any:
    def call(*args: Any, **given: Any) -> Any:
        if given.get("dir_fd") is not None:
            raise NotImplementedError("dir_fd unavailable on this platform")
        if function is listing and args and isinstance(args[0], int):
            raise TypeError("listdir: path should be a name")
        if function is opening and os.path.isdir(args[0]):  # noqa: PTH112
            raise PermissionError(13, "Permission denied", args[0])
        return function(*args, **given)

    return call


listing, opening = os.listdir, os.open
for name in GONE:
    if hasattr(os, name):
        delattr(os, name)
os.supports_dir_fd = set()
for name in ("open", "stat", "mkdir", "unlink", "rmdir", "listdir", "scandir"):
    setattr(os, name, _by_name_only(getattr(os, name)))
for name in MODULES:
    sys.modules[name] = None  # type: ignore[assignment]
