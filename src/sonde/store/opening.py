"""The one door to the files of a run or of another program's log: nothing behind it was checked by anybody.

A run may come from a stranger: in an archive, on a shared disk. So only regular files are opened, and no link inside of
the folder is followed, whether it stands for a file or for a folder on the way: what it points to belongs to somebody
else. A FIFO or a device is refused at once instead of being waited for. A file counts as long as what the disk really
holds of it, up to its first hole: a terabyte of nothing costs nothing to send.

`depth` says how many of the last names of a path lie inside of the folder that was received. Links above them are the
user's own (`runs/latest`, a home folder on another disk) and are followed.
"""

import contextlib
import errno
import fnmatch
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from sonde.core.errors import FormatError
from sonde.store.folders import Folder, open_folder

_CHUNK_BYTES = 1 << 20


class Refused(OSError):
    """Something is there that is not opened: a link, a FIFO, a device, a socket."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(errno.EPERM, f"it is {what}, which Sonde does not open", str(path))


def descriptor(path: Path, flags: int = os.O_RDONLY, *, depth: int, mode: int = 0o666) -> int:
    """A file descriptor of a regular file.

    Args:
        path: The file.
        flags: As `os.open` takes them; `O_TRUNC` is not for files that somebody else may have put there.
        depth: How many of the last names of the path no link may stand for, at least 1.
        mode: Of a file that is made.

    Raises:
        Refused: it is, or lies behind, something else.
        OSError: it cannot be opened.
    """
    assert not flags & os.O_TRUNC
    with _folder_of(path, depth) as folder:
        try:
            fd = folder.open(path.name, flags, mode)
        except OSError as error:
            what = _kind(path.name, folder)
            if what is None or what in ("a regular file", "a folder"):
                raise OSError(error.errno, error.strerror, str(path)) from None
            raise Refused(path, what) from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        what = _described(os.fstat(fd).st_mode)
        os.close(fd)
        raise Refused(path, what)
    return fd


def check(path: Path, *, depth: int) -> None:
    """Complain of what is there, unless it is a regular file or nothing at all.

    Raises:
        Refused: it is something else.
        OSError: it cannot be opened.
    """
    with contextlib.suppress(FileNotFoundError):
        os.close(descriptor(path, depth=depth))


def stored_bytes(fd: int) -> int:
    """The length of a file up to its first hole; no file that Sonde or a logger writes has one."""
    size = os.fstat(fd).st_size
    if not size:
        return 0
    if not hasattr(os, "SEEK_HOLE"):
        return size
    try:
        return min(size, os.lseek(fd, 0, os.SEEK_HOLE))
    except OSError:  # a file system that does not know
        return size
    finally:
        os.lseek(fd, 0, os.SEEK_SET)


def read_bytes(path: Path, *, depth: int, limit: int) -> bytes:
    """The content of a file.

    Raises:
        OSError: it cannot be opened.
        FormatError: it is longer than `limit`, or has holes.
    """
    with reading(path, depth=depth) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise FormatError(f"it has {size:,} bytes; at most {limit:,} are read.")
        if stored_bytes(file.fileno()) < size:
            raise FormatError("the disk holds only a part of it; copy it again.")
        return file.read(size)


def reading(path: Path, *, depth: int) -> BinaryIO:
    """A file opened for reading bytes.

    Raises:
        OSError: it cannot be opened.
    """
    return os.fdopen(descriptor(path, depth=depth), "rb")


def files(root: Path, pattern: str = "*") -> list[Path]:
    """The regular files below a folder whose names match a shell-style pattern, sorted; no link is followed."""
    found = []
    for folder, _, names_ in os.walk(root):  # which follows none
        for name in names_:
            path = Path(folder, name)
            if fnmatch.fnmatchcase(name, pattern) and stat.S_ISREG(path.lstat().st_mode):
                found.append(path)
    return sorted(found)


def reading_below(root: Path, path: Path) -> BinaryIO:
    """A file of what the user named, opened for reading: the file itself, or one of `files`.

    Raises:
        OSError: it cannot be opened.
        FormatError: it has holes.
    """
    # What the user named may be a link.
    file = reading(path.resolve(), depth=1) if path == root else reading(path, depth=len(path.relative_to(root).parts))
    if stored_bytes(file.fileno()) < os.fstat(file.fileno()).st_size:
        file.close()
        raise FormatError(f"the disk holds only a part of {path}; copy it again.")
    return file


def lines(path: Path, *, depth: int, longest: int, limit: int) -> Iterator[bytes | None]:
    """The lines of a file with their ends, empty ones left out; None for one that is too long.

    Args:
        path: The file.
        depth: See `descriptor`.
        longest: The most bytes that a line may have.
        limit: The most bytes that are read; what comes behind them is one line that is too long.

    Raises:
        OSError: it cannot be opened.
    """
    with reading(path, depth=depth) as file:
        yield from lines_of(file, longest=longest, limit=limit)


def lines_of(file: BinaryIO, *, longest: int, limit: int) -> Iterator[bytes | None]:
    """The lines of an open file; see `lines`."""
    left = stored_bytes(file.fileno())
    has_more = left < os.fstat(file.fileno()).st_size or left > limit
    left = min(left, limit)
    while left > 0 and (line := file.readline(min(left, longest + 1))):
        left -= len(line)
        if len(line) > longest and not line.endswith(b"\n"):
            left -= _skip_line(file, left)
            yield None
        elif line != b"\n":
            yield line
    if has_more:
        yield None


def _skip_line(file: BinaryIO, left: int) -> int:
    skipped = 0
    while skipped < left and (piece := file.readline(min(left - skipped, _CHUNK_BYTES))):
        skipped += len(piece)
        if piece.endswith(b"\n"):
            break
    return skipped


def names(folder: Path, *, depth: int) -> list[str]:
    """What a folder holds, sorted.

    Raises:
        Refused: a link or something else stands in its place.
        OSError: it cannot be listed.
    """
    with _folder_of(folder / "_", depth + 1) as opened:
        return sorted(opened.names())


def is_folder(path: Path, *, depth: int) -> bool:
    """Whether a folder is there, and no link in its place."""
    try:
        with _folder_of(path / "_", depth + 1):
            return True
    except OSError:
        return False


def is_file(path: Path, *, depth: int) -> bool:
    """Whether a regular file is there, and no link in its place or on the way."""
    try:
        with _folder_of(path, depth) as folder:
            return _kind(path.name, folder) == "a regular file"
    except OSError:
        return False


def make_folder(path: Path, *, depth: int) -> None:
    """Make a folder and those above it, unless they are there.

    Raises:
        Refused: a link or something else stands in the place of one of them.
        OSError: it cannot be made.
    """
    above, inner = _split(path / "_", depth + 1)
    Path(above).mkdir(parents=True, exist_ok=True)
    for number in range(len(inner)):
        part = Path(above, *inner[: number + 1])
        try:
            part.mkdir()
        except FileExistsError:
            if not is_folder(part, depth=number + 1):
                raise Refused(part, _described(part.lstat().st_mode)) from None


def new_folder(path: Path, *, depth: int) -> None:
    """Make a folder in one that is there.

    Raises:
        FileExistsError: something is there already.
        OSError: it cannot be made.
    """
    with _folder_of(path, depth) as folder:
        folder.make(path.name)


def writing(path: Path, *, depth: int) -> BinaryIO:
    """A new file opened for writing bytes.

    Raises:
        FileExistsError: something is there already.
        OSError: it cannot be made.
    """
    return os.fdopen(descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, depth=depth), "wb")


def replace(path: Path, content: bytes, *, depth: int) -> None:
    """Write a file so that a reader sees the old one or the new one, never half of it; a link is replaced itself.

    Raises:
        OSError: it cannot be written.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        remove(temporary, depth=depth)  # left by a process that had our number, or put there
        with writing(temporary, depth=depth) as file:
            file.write(content)
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def sync_folder(path: Path, *, depth: int) -> None:
    """Ask the disk to keep a folder's list of names."""
    with _folder_of(path / "_", depth + 1) as folder:
        folder.sync()


def remove(path: Path, *, depth: int) -> None:
    """Delete a file, a link itself, or a folder with all that is in it, unless it lies behind a link."""
    with contextlib.suppress(OSError), _folder_of(path, depth) as folder:
        folder.remove(path.name)


def _split(path: Path, depth: int) -> tuple[str, tuple[str, ...]]:
    """The folder that the user named, and the names of those between it and the last name.

    Example:
        >>> _split(Path("runs/a/tables/step/columns.jsonl"), 3), _split(Path("run.json"), 1)
        (('runs/a', ('tables', 'step')), ('.', ()))
    """
    parts = path.parts
    root = len(path.anchor)  # the anchor of a POSIX path is "/", or nothing
    at = max(len(parts) - depth, root)
    return path.anchor + "/".join(parts[root:at]) or ".", parts[at:-1]


@contextlib.contextmanager
def _folder_of(path: Path, depth: int) -> Iterator[Folder]:
    """The folder in which a path ends, every name of it below the user's own opened by itself."""
    above, inner_names = _split(path, depth)
    folder = open_folder(above)
    try:
        for number, name in enumerate(inner_names):
            try:
                inner = folder.inner(name)
            except OSError as error:
                place = Path(above, *inner_names[: number + 1])
                what = _kind(name, folder)
                if what in (None, "a folder", "a regular file"):
                    raise OSError(error.errno, error.strerror, str(place)) from None
                raise Refused(place, str(what)) from None
            folder, outer = inner, folder
            outer.close()
        yield folder
    finally:
        folder.close()


def _kind(name: str, folder: Folder) -> str | None:
    """What a name in a folder stands for; None where it is not there."""
    try:
        return _described(folder.status(name).st_mode)
    except OSError:
        return None


def _described(mode: int) -> str:
    kinds = {
        stat.S_IFREG: "a regular file",
        stat.S_IFDIR: "a folder",
        stat.S_IFLNK: "a link",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(mode), "a device")
