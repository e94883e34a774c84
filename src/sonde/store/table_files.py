"""A table's files as the writer sees them: the log that is appended to, and the folding behind it."""

import contextlib
import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from sonde.store import column_index, layout, opening
from sonde.store.buffers import RowBlock
from sonde.store.folding import MAX_ROWS, fold_log, merge, merge_due
from sonde.store.row_log import header, row_dtype, seed
from sonde.store.segments import Segment, read_segment
from sonde.streams.logs import logger

_log = logger("sonde.store")

# A log is folded once it has enough rows and this many bytes; narrow tables wait for up to eight times the rows, so
# that a segment is worth a file.
_SEGMENT_BYTES = 256 << 10
_RETRY_S = 10.0


class TableFiles:
    """Writes one table. Only the background thread calls it; whatever the disk refuses stays here and is tried again.

    Args:
        folder: The table's.
        bins: Numbers in each cell.
        tags: The columns that an earlier session recorded.
        segment_rows: From how many rows on a log is folded.
    """

    def __init__(self, folder: Path, bins: int, tags: tuple[str, ...], segment_rows: int) -> None:
        self._segment_rows = segment_rows
        self._folder, self._bins, self._tags = folder, bins, tags
        self._num_written = len(tags)  # of the columns, those that are in the table's file
        self._blocks: deque[RowBlock] = deque()
        self._sending: memoryview | None = None
        self._fd, self._number, self._branch, self._width, self._rows = -1, -1, -1, -1, 0
        self._next: dict[int, int] = {}
        self._to_fold: deque[tuple[int, int, bool]] = deque()  # branch, number, whether another process wrote it
        self._merge_branches: set[int] = set()
        self._retry_at = 0.0
        self._segments: dict[str, Segment] = {}
        self._recover()

    def _recover(self) -> None:
        if not self._folder.is_dir():
            return
        for inside in opening.names(self._folder, depth=layout.IN_TABLE - 1):
            branch, entry = layout.branch_number(inside), self._folder / inside
            if branch is None:
                continue
            keep = set(layout.parts(entry))
            for name in opening.names(entry, depth=layout.IN_BRANCH - 1):
                if name.endswith(".tmp") or (layout.covered(name) and name not in keep):
                    opening.remove(entry / name, depth=layout.IN_BRANCH)
            spans = [(span, name) for name in keep if (span := layout.covered(name))]
            self._next[branch] = max((span[1] for span, _ in spans), default=-1) + 1
            self._to_fold.extend(sorted((branch, span[0], True) for span, name in spans if name.endswith(".log")))
            self._merge_branches.add(branch)

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return len(self._tags) * self._bins

    def queue(self, tags: tuple[str, ...], blocks: Sequence[RowBlock]) -> None:
        """Take what the table's buffer gave."""
        self._tags = tags
        self._blocks.extend(blocks)

    def drain(self) -> Iterator[RowBlock]:
        """Write all that is queued; yields the blocks that are on the disk.

        Raises:
            OSError: the disk refused; nothing is lost, the next call goes on where this one stopped.
        """
        self._add_columns()
        while self._blocks:
            block = self._blocks[0]
            if self._sending is None:
                self._open_log(block)
                self._sending = block.seal(seed(self._width, self._number))
            while self._sending:
                self._sending = self._sending[os.write(self._fd, self._sending) :]
            self._sending = None
            self._rows += block.filled
            self._blocks.popleft()
            if self._rows >= MAX_ROWS:  # rows that come faster than they are folded: no log without end
                self.close_log()
            yield block
        bytes_ = self._rows * row_dtype(max(self._width, 0)).itemsize
        if self._rows >= (self._segment_rows if bytes_ >= _SEGMENT_BYTES else 8 * self._segment_rows):
            self.close_log()

    def _add_columns(self) -> None:
        if self._num_written < len(self._tags):
            opening.make_folder(self._folder, depth=layout.IN_TABLE - 1)
            column_index.append(self._folder, self._tags, self._num_written, len(self._tags), self._bins)
            self._num_written = len(self._tags)

    def _open_log(self, block: RowBlock) -> None:
        if self._fd >= 0 and (block.width, block.branch) == (self._width, self._branch):
            return
        self.close_log()
        folder = layout.branch_folder(self._folder, block.branch)
        opening.make_folder(folder, depth=layout.IN_BRANCH - 1)
        number = self._next.get(block.branch, 0)
        path = folder / layout.log_name(number)
        fd = opening.descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, depth=layout.IN_BRANCH)
        try:
            head = header(block.width, number)
            while head:
                head = head[os.write(fd, head) :]
        except OSError:
            os.close(fd)
            opening.remove(path, depth=layout.IN_BRANCH)
            raise
        self._next[block.branch] = number + 1
        self._fd, self._number, self._branch, self._width, self._rows = (
            fd,
            number,
            block.branch,
            block.width,
            0,
        )

    def close_log(self) -> None:
        """End the open log; it will be folded."""
        if self._fd >= 0:
            os.close(self._fd)
            self._to_fold.append((self._branch, self._number, False))
            self._fd, self._rows = -1, 0

    def begin_again(self, folder: Path) -> "TableFiles":
        """The same table in another folder, with the rows that were not written yet; this one is let go of."""
        self.abandon()
        again = TableFiles(folder, self._bins, (), self._segment_rows)
        again.queue(self._tags, self._blocks)
        return again

    def sync(self) -> None:
        """Ask the disk to keep what was written, and is not in a segment, which is kept by the time it appears."""
        if self._fd >= 0:
            os.fsync(self._fd)
        for branch, number, _ in self._to_fold:
            log = layout.branch_folder(self._folder, branch) / layout.log_name(number)
            with (
                contextlib.suppress(FileNotFoundError),
                os.fdopen(opening.descriptor(log, depth=layout.IN_BRANCH), "rb") as file,
            ):
                os.fsync(file.fileno())

    def abandon(self) -> None:
        """Let go of the file without a word; for a child process that inherited it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def fold(self) -> Iterator[None]:
        """Fold and merge all that is due; yields often. A disk that refuses costs nothing but a later try."""
        if time.monotonic() < self._retry_at:
            return
        try:
            while self._to_fold:
                branch, number, foreign = self._to_fold[0]
                folder = layout.branch_folder(self._folder, branch)
                yield from fold_log(folder, number, self._tags, self._bins, check_all=foreign)
                self._to_fold.popleft()
                self._merge_branches.add(branch)
            while self._merge_branches:
                branch = next(iter(self._merge_branches))
                folder = layout.branch_folder(self._folder, branch)
                if names := merge_due(self._listed(folder)):
                    yield from merge(folder, names, self._tags, self._bins)
                else:
                    self._merge_branches.discard(branch)
        except Exception as error:  # the rows are safe in their logs, whatever it was
            self._retry_at = time.monotonic() + _RETRY_S
            if not isinstance(error, OSError):  # a full disk is said where rows are written
                _log.warning("folding %s is put off: %r", self._folder, error)

    @property
    def has_folding(self) -> bool:
        """Whether `fold` has anything to do."""
        return bool(self._to_fold or self._merge_branches) and time.monotonic() >= self._retry_at

    def _listed(self, folder: Path) -> list[tuple[str, Segment]]:
        """The segments of a branch behind the last log that is not folded yet, oldest first."""
        names = layout.parts(folder)
        while names and names[-1].endswith(".log"):
            names.pop()
        listed: list[tuple[str, Segment]] = []
        for name in names:
            if name.endswith(".log"):
                listed.clear()
                continue
            path = str(folder / name)
            if path not in self._segments:
                self._segments[path] = read_segment(folder / name)
            listed.append((name, self._segments[path]))
        return listed
