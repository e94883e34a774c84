"""Small files that only their user can have written: opened once, never waited for, refused where others can write."""

import errno
import os
import shlex
import stat
from pathlib import Path
from typing import NamedTuple

# Those that the system has: Windows has none of them.
_NOT_WAITING = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0)
_MOST_BYTES = 1 << 20  # a configuration of a thousand settings has 50 kB


class Content(NamedTuple):
    """What a file holds, and why it may not be used."""

    data: bytes
    trouble: str = ""
    """What is wrong with the file, in words that go on after its path; empty where nothing is."""
    advice: str = ""
    """What to do about it."""


_LINK = Content(b"", "is a link", "put the file itself there, or name it: SONDE_CONFIG=FILE")


def read(path: Path, *, follow: bool = False) -> Content | None:
    """The file's content; None where there is no file. Whoever uses it looks at `trouble` first.

    In order are regular files of at most 1 MiB that belong to the user or to root, that nobody else can write, in a
    folder in which not everybody can put another in their place. Links are not followed: they may lead anywhere.

    Args:
        path: The file.
        follow: Follow a link all the same: the user has put it there.
    """
    if not os.path.lexists(path):  # never raises, whatever may be entered
        return None
    if not follow and path.is_symlink():
        return _LINK
    try:
        fd = os.open(path, os.O_RDONLY | _NOT_WAITING | (0 if follow else getattr(os, "O_NOFOLLOW", 0)))
    except OSError as error:
        if error.errno == errno.ELOOP and not follow:
            return _LINK
        return Content(b"", f"cannot be read: {error.strerror}", "make it readable, or remove it")
    with open(fd, "rb", buffering=0) as file:  # noqa: PTH123  # by descriptor: what was looked at is what is read
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return Content(b"", "is no regular file", "put a file there, or remove it")
        data = file.read(_MOST_BYTES + 1) or b""
    if len(data) > _MOST_BYTES:
        return Content(b"", f"is larger than {_MOST_BYTES >> 20} MiB", "shorten it")
    return Content(data, *_trouble(path, status))


def everybody_writes(folder: Path) -> bool:
    """Whether users whom nobody chose can put files into the folder; so it is taken where that is not known."""
    try:
        return bool(folder.stat().st_mode & stat.S_IWOTH)
    except OSError:
        return True


def _trouble(path: Path, status: os.stat_result) -> tuple[str, str]:
    if not hasattr(os, "geteuid"):  # who may write is said in another way there, and a home folder is its user's own
        return "", ""
    me = os.geteuid()
    if status.st_uid not in (me, 0):
        return f"belongs to user {status.st_uid}, not to you", "read it, and copy it where it should hold"
    shared = status.st_mode & stat.S_IWGRP and not _is_private(status.st_gid, me)
    if status.st_mode & stat.S_IWOTH or shared:
        return "can be written by others", f"chmod go-w {shlex.quote(str(path))}"
    if everybody_writes(path.parent) and not _keeps_files(path.parent):
        return "lies in a folder that everybody can write", f"chmod o-w {shlex.quote(str(path.parent))}"
    return "", ""


def _keeps_files(folder: Path) -> bool:
    """Whether only its owner can replace a file there, as in /tmp."""
    try:
        return bool(folder.stat().st_mode & stat.S_ISVTX)
    except OSError:
        return False


def _is_private(gid: int, uid: int) -> bool:
    """Whether the group is the user's alone: many systems give each user one, and let it write what the user makes."""
    import grp  # not for a file that nobody but its owner can write
    import pwd

    try:
        user, group = pwd.getpwuid(uid), grp.getgrgid(gid)
    except KeyError:
        return False
    return gid == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
