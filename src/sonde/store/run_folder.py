"""The folder that a run is recorded into: held open, so that it is known when somebody moves or removes it."""

import enum
import itertools
import os
from pathlib import Path

from sonde.core.errors import RunBusy, StoreError
from sonde.store import folders, layout, locks

_CONTINUES = "continues"


class Change(enum.StrEnum):
    """What has become of the folder since the last look."""

    NONE = "none"
    RENAMED = "renamed"
    REMOVED = "removed"
    REPLACED = "replaced"
    """Something else is in its place."""


class RunFolder:
    """A run's folder and its lock.

    Files are opened by way of the open folder itself, where the system can do that (Linux): so they are found when it
    is renamed, and nothing is ever written into a folder that has come in its place. Elsewhere a renamed folder counts
    as a removed one.

    Args:
        path: The folder, which exists.

    Attributes:
        path: Where it is, as a user would say it.
        location: The same from the root on, without links.
        root: What the paths of files that are written begin with.

    Raises:
        RunBusy: another process records into it.
    """

    def __init__(self, path: Path) -> None:
        self._first = path.resolve()
        self._open(path)

    def _open(self, path: Path) -> None:
        lock = locks.acquire(path)
        try:
            descriptor = folders.descriptor(path)
        except BaseException:
            os.close(lock)
            raise
        self._lock, self._descriptor = lock, descriptor
        self.path, self.location = path, path.resolve()
        inside = Path(f"/proc/self/fd/{self._descriptor}")
        self.root = inside if _is(inside, self._descriptor) else self.location

    def look(self) -> Change:
        """What has become of it; a renamed one is followed.

        Raises:
            OSError: the disk does not say.
        """
        is_whole = _is(self.root / layout.LOCK, self._lock)  # else its files are removed, or are being removed
        if is_whole and _is(self.location, self._descriptor):
            return Change.NONE
        if is_whole and self.root != self.location:
            now = self.root.readlink()
            if _is(now, self._descriptor):
                self.path = self.location = now
                return Change.RENAMED
        there = self.location.exists() and not _is(self.location, self._descriptor)
        return Change.REPLACED if there else Change.REMOVED

    def begin_again(self) -> None:
        """Go on in a folder beside: `<run>-2`, or the next number that is free. Files of the old one must be closed.

        Ranks that train together go on in the same one, each in its own part.

        Raises:
            OSError: it cannot be made.
        """
        run, part = self._first, Path()
        if run.parent.name == layout.RANKS:
            run, part = run.parents[1], Path(layout.RANKS, run.name)
        for number in itertools.count(2):
            beside = run.with_name(f"{run.name}-{number}")
            if not _is_free(beside, part, continues=str(run)):
                continue
            folder = beside / part
            folder.mkdir(parents=True, exist_ok=True)
            lock, descriptor = self._lock, self._descriptor
            try:
                self._open(folder)
            except RunBusy:
                continue
            os.close(lock)
            os.close(descriptor)
            return

    def note(self, change: Change, lost_steps: int) -> dict[str, object]:
        """For `run.json` of the folder in which the run goes on: what it continues."""
        run = self._first.parents[1] if self._first.parent.name == layout.RANKS else self._first
        return {_CONTINUES: {"run": str(run), "lost_steps": lost_steps, "reason": str(change)}}

    def close(self) -> None:
        """Let go of the folder and the lock."""
        os.close(self._lock)
        os.close(self._descriptor)


def _is(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except (FileNotFoundError, NotADirectoryError):
        return False


def _is_free(run: Path, part: Path, *, continues: str) -> bool:
    """Whether a run, or a rank's part of it, can begin there; other ranks of the same training may have come before."""
    if not run.exists():
        return True
    if not run.is_dir() or (part.parts and (run / part).exists()):
        return False
    if set(os.listdir(run)) <= {layout.RANKS}:
        return True
    try:
        said = layout.read_info(run).get(_CONTINUES)
    except StoreError:
        return False
    return bool(part.parts) and isinstance(said, dict) and said.get("run") == continues
