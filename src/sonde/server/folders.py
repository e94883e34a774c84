"""The folder that is shown: which runs it holds, and where a run lies whose name came by a request."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import final

from sonde.server.refusals import Refusal
from sonde.store import layout

_DEEPEST = 5
_MOST_FOLDERS = 50_000  # looked into at one listing: a home folder that was named by mistake must end
_MOST_CHARS = 4096


@final
class Folder:
    """A folder of runs, or one run.

    A run's id is its path below the folder, with `/`; where the folder itself is a run, it is the folder's name. Bytes
    of a name that are no text are `%XX` in the id. Nothing outside of the folder has an id: links that lead out of it
    are as if they were not there.

    Args:
        root: The folder; it may be a link itself.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)
        self._name = self.root.resolve().name or "run"

    @property
    def is_run(self) -> bool:
        """Whether the folder itself is a run."""
        return os.path.lexists(self.root / layout.RUN)

    def runs(self) -> dict[str, Path]:
        """The runs that there are now, by their ids; those that lie behind links are not listed."""
        root = self.root.resolve()
        if self.is_run:
            return {_id(self._name): root}
        return {_id(inside): Path(path) for inside, path in _below(str(root))}

    def find(self, run: str) -> Path:
        """The folder of a run.

        Raises:
            Refusal: there is none of that id.
        """
        path = self._path(run)
        if path is None:
            shown = run if len(run) <= 200 else f"{run[:200]}…"
            raise Refusal(
                404,
                f"there is no run {shown!r}.",
                allowed="the ids that /api/runs lists.",
                do="look at the table of runs: this one was deleted, moved or never there.",
            )
        return path

    def _path(self, run: str) -> Path | None:
        if not run or len(run) > _MOST_CHARS or "\0" in run:
            return None
        if self.is_run:
            own, _, inner = run.partition("/")
            if own != _id(self._name):
                return None
            return self._inside(inner) if inner else self.root.resolve()
        return self._inside(run) or (self._inside(_from_id(run)) if "%" in run else None)

    def _inside(self, inner: str) -> Path | None:
        """A run at a path below the root; None where the path leaves it, or ends elsewhere."""
        names = inner.split("/")
        if any(name in ("", ".", "..") for name in names):
            return None
        try:
            root = self.root.resolve(strict=True)
            path = root.joinpath(*names).resolve(strict=True)
            if not path.is_relative_to(root) or path == root:
                return None
            # What is opened is what was looked at: a path without links.
            return path if os.path.lexists(path / layout.RUN) else None
        except (OSError, ValueError, RuntimeError):  # not there; a loop of links
            return None


def _below(root: str) -> Iterator[tuple[str, str]]:
    """The runs below a folder: each by its path in the folder, and its whole path."""
    todo = [("", root, 1)]
    looked = 0
    while todo and looked < _MOST_FOLDERS:
        inside, folder, depth = todo.pop()
        looked += 1
        for name in _folders(folder):
            path, below = f"{folder}/{name}", f"{inside}{name}"
            if os.path.lexists(f"{path}/{layout.RUN}"):
                yield below, path
            elif depth < _DEEPEST:
                todo.append((f"{below}/", path, depth + 1))


def _folders(folder: str) -> list[str]:
    """The names of the folders in a folder, links and hidden ones left out."""
    try:
        with os.scandir(folder) as entries:
            return [
                entry.name
                for entry in entries
                if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
            ]
    except OSError:  # not ours to read, or deleted meanwhile
        return []


def _id(path: str) -> str:
    r"""A path as text that every program can write.

    Example:
        >>> _id("a/b"), _id(b"caf\xe9".decode(errors="surrogateescape"))
        ('a/b', 'caf%E9')
    """
    return "".join(f"%{ord(sign) - 0xDC00:02X}" if 0xDC80 <= ord(sign) <= 0xDCFF else sign for sign in path)


def _from_id(run: str) -> str:
    """The path whose `_id` this is, where bytes of it are no text."""
    pieces = run.split("%")
    found = pieces[0]
    for piece in pieces[1:]:
        try:
            byte = bytes.fromhex(piece[:2])
        except ValueError:
            byte = b""
        if len(byte) == 1 and byte[0] >= 0x80:
            found += chr(0xDC00 + byte[0]) + piece[2:]
        else:
            found += f"%{piece}"
    return found
