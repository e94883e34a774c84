"""Runs on another machine, copied here as they grow: from whatever Arrow's file systems read.

Only files that belong to runs are copied, and only where they have changed; what is gone there is deleted here. A
reader of the copy copes with what is not copied yet, as it does with a run that was copied half-way.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

from sonde.core.errors import StoreError
from sonde.store import opening

MOST_BYTES = 20 << 30
_MOST_FILES = 1_000_000
_OURS = re.compile(
    r"run\.json|state\.json|events\.jsonl|branches\.jsonl|notes\.jsonl|columns\.jsonl|segment\.json"
    r"|rows-\d{8}\.log|block-\d{4}\.(?:parquet|pyramid)"
)
_SMALL = (".json", ".jsonl", ".log", ".pyramid")  # what tables and pictures begin with; rows are copied behind it


def is_url(text: str) -> bool:
    """Whether a text names a folder elsewhere, as Arrow reads it.

    Example:
        >>> is_url("s3://bucket/runs"), is_url("runs/a"), is_url("file:///data/runs")
        (True, False, True)
    """
    return re.match(r"[a-z][a-z0-9+.-]*://", text) is not None


@final
class Mirror:
    """A copy of a folder of runs.

    Args:
        url: The folder: `s3://bucket/runs`, `gs://…`, `hdfs://…`, `file:///…`.
        folder: Where the copy is; nobody else writes there.
        most_bytes: What is copied at most: of more, the rows of the runs that were written first are left out.

    Raises:
        StoreError: Arrow cannot read such a folder.
    """

    def __init__(self, url: str, folder: Path, *, most_bytes: int = MOST_BYTES) -> None:
        from pyarrow import fs

        self._folder, self._most_bytes = folder, most_bytes
        self._have: dict[str, tuple[int, int | None]] = {}
        self._selector = fs.FileSelector
        self._file = fs.FileType.File
        self.left_out = 0
        """Files that did not fit at the last look."""
        try:
            self._there, self._root = fs.FileSystem.from_uri(url)
        except (ValueError, OSError) as error:  # Arrow's own errors are of these
            raise StoreError(f"{url} cannot be read: {str(error).partition(chr(10))[0]}") from error

    def sync(self, is_over: Callable[[], bool] = lambda: False) -> int:
        """Copy what has changed; how many files that were.

        Args:
            is_over: Asked before each file; the rest is left to the next look.

        Raises:
            StoreError: the folder cannot be listed.
        """
        there = self._listed()
        wanted = self._fitting(there)
        copied = 0
        for name, stamp in wanted.items():
            if is_over():
                return copied
            if self._have.get(name) != stamp and self._copy(name):
                self._have[name] = stamp
                copied += 1
        for name in self._have.keys() - wanted.keys():  # at last: a segment takes the place of its logs
            (self._folder / name).unlink(missing_ok=True)
            del self._have[name]
            self._prune((self._folder / name).parent)
        return copied

    def _listed(self) -> dict[str, tuple[int, int | None]]:
        try:
            entries = self._there.get_file_info(self._selector(self._root, recursive=True, allow_not_found=True))
        except (ValueError, OSError) as error:
            raise StoreError(f"{self._root} cannot be listed: {str(error).partition(chr(10))[0]}") from error
        return {
            name: (entry.size, entry.mtime_ns)
            for entry in entries[:_MOST_FILES]
            if entry.type == self._file and (name := self._name(entry)) is not None
        }

    def _name(self, entry: Any) -> str | None:
        """The path of a file of a run below the folder; None of any other."""
        root = self._root.rstrip("/") + "/"
        if not entry.path.startswith(root) or not _OURS.fullmatch(entry.base_name):
            return None
        parts = entry.path[len(root) :].split("/")
        return None if any(part in ("", ".", "..") or "\0" in part for part in parts) else "/".join(parts)

    def _fitting(self, there: dict[str, tuple[int, int | None]]) -> dict[str, tuple[int, int | None]]:
        order = sorted(there, key=lambda name: (not name.endswith(_SMALL), -(there[name][1] or 0)))
        kept: dict[str, tuple[int, int | None]] = {}
        used = 0
        for name in order:
            used += there[name][0]
            if used > self._most_bytes:
                break
            kept[name] = there[name]
        self.left_out = len(there) - len(kept)
        return kept

    def _copy(self, name: str) -> bool:
        """Whether it was still there; readers see the old file or the new one, never half of it."""
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_name(f".{path.name}.half")
        try:
            opening.remove(half, depth=1)
            source = f"{self._root.rstrip('/')}/{name}"
            with self._there.open_input_stream(source) as stream, opening.writing(half, depth=1) as file:
                while piece := stream.read(1 << 20):
                    file.write(piece)
            half.replace(path)
        except OSError:  # superseded or deleted since it was listed; the next look says which
            opening.remove(half, depth=1)
            return False
        return True

    def _prune(self, folder: Path) -> None:
        while folder != self._folder:
            try:
                folder.rmdir()
            except OSError:  # something is in it
                return
            folder = folder.parent
