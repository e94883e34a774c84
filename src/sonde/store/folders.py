"""A folder whose entries are reached without following links: by a descriptor, or by name where a system has none."""

import os
import shutil
import stat
from pathlib import Path
from typing import Protocol, final

# Flags that a system does not have mean nothing there; `O_BINARY` is Windows's, without which lines change.
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_FILE = (
    _NO_LINK
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NOINHERIT", 0)
)


class Folder(Protocol):
    """An open folder."""

    def inner(self, name: str) -> "Folder":
        """A folder inside; a link is none."""

    def open(self, name: str, flags: int, mode: int) -> int:
        """A descriptor of a file inside, a link not followed, nothing waited for."""

    def status(self, name: str) -> os.stat_result:
        """What stands there, a link itself."""

    def names(self) -> list[str]:
        """What is inside."""

    def make(self, name: str) -> None:
        """A folder inside, which must not be there."""

    def remove(self, name: str) -> None:
        """A file or a link inside, or a folder with all that is in it."""

    def sync(self) -> None:
        """Ask the disk to keep the list of names, where the system can."""

    def close(self) -> None:
        """Let go of it."""


def descriptor(path: str | Path) -> int:
    """A file descriptor of a folder that the user named; it may be a link.

    Raises:
        OSError: it cannot be opened.
    """
    return os.open(path, _FOLDER)


def open_folder(path: str) -> Folder:
    """A folder that the user named; it may be a link.

    Raises:
        OSError: it cannot be opened.
    """
    return _Held(descriptor(path)) if os.open in os.supports_dir_fd else _named(path)


@final
class _Held:
    """By a descriptor: what is inside is what was inside when it was opened, whoever moves folders meanwhile."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def inner(self, name: str) -> Folder:
        return _Held(os.open(name, _FOLDER | _NO_LINK, dir_fd=self._fd))

    def open(self, name: str, flags: int, mode: int) -> int:
        return os.open(name, flags | _FILE, mode, dir_fd=self._fd)

    def status(self, name: str) -> os.stat_result:
        return os.stat(name, dir_fd=self._fd, follow_symlinks=False)

    def names(self) -> list[str]:
        return os.listdir(self._fd)

    def make(self, name: str) -> None:
        os.mkdir(name, dir_fd=self._fd)

    def remove(self, name: str) -> None:
        if stat.S_ISDIR(self.status(name).st_mode):
            shutil.rmtree(name, ignore_errors=True, dir_fd=self._fd)
        else:
            os.unlink(name, dir_fd=self._fd)

    def sync(self) -> None:
        os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


@final
class _Named:
    """By its name, on systems without such descriptors (Windows).

    What stands at a name is looked at before it is opened: who can change folders in between could have a link
    followed. Making links needs a right of its own there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def inner(self, name: str) -> Folder:
        if not stat.S_ISDIR(self.status(name).st_mode):
            raise NotADirectoryError(20, "it is no folder", str(self._path / name))
        return _Named(self._path / name)

    def open(self, name: str, flags: int, mode: int) -> int:
        try:
            is_plain = stat.S_ISREG(self.status(name).st_mode)
        except FileNotFoundError:
            is_plain = True  # what is made now
        if not is_plain:
            raise PermissionError(1, "it is no regular file", str(self._path / name))
        return os.open(self._path / name, flags | _FILE, mode)

    def status(self, name: str) -> os.stat_result:
        return (self._path / name).lstat()

    def names(self) -> list[str]:
        return os.listdir(self._path)

    def make(self, name: str) -> None:
        (self._path / name).mkdir()

    def remove(self, name: str) -> None:
        if stat.S_ISDIR(self.status(name).st_mode):
            shutil.rmtree(self._path / name, ignore_errors=True)
        else:
            (self._path / name).unlink()

    def sync(self) -> None:
        """Windows keeps it by itself."""

    def close(self) -> None:
        """Nothing is held."""


def _named(path: str) -> Folder:
    if not stat.S_ISDIR(Path(path).stat().st_mode):
        raise NotADirectoryError(20, "Not a directory", path)
    return _Named(Path(path))
