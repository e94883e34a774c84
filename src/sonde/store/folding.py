"""From logs to segments, and from many small segments to few large ones.

Segments are merged by size: the newest eight or more that are smaller than a class (powers of eight rows) become one
as soon as they reach the class together. So each row is rewritten at most once a class; only where 64 small ones came
between larger ones do they become one earlier, so that a run of any length has a few dozen segments and those of the
largest class. Both are iterators that yield every fraction of a second, so that one thread can fold and still flush on
time.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sonde.core.frames import MISSING, Float32
from sonde.store import layout, lent_memory, opening
from sonde.store.row_log import HEADER_BYTES, RowLog
from sonde.store.segments import BlockFile, Segment, block_path, read_segment, write_segment

FAN_IN = 8
MAX_ROWS = FAN_IN**6  # 262,144: a segment of this many rows is left alone
MAX_WAITING = FAN_IN**2


def fold_log(folder: Path, number: int, tags: Sequence[str], bins: int, *, check_all: bool = False) -> Iterator[None]:
    """Turn one log into a segment and delete it.

    Args:
        folder: The branch's folder.
        number: Of the log.
        tags: The table's columns, at least as many as the log has.
        bins: Numbers in each cell.
        check_all: Whether to check every row's checksum; needed where another process wrote the log.
    """
    path = folder / layout.log_name(number)
    target = folder / layout.segment_name(number, number)
    with RowLog(path, check_all=check_all) as log:
        if len(log) and log.width and not target.exists():  # it does where only the deleting of the log failed

            def read(first: int, last: int) -> Float32:
                return _series_first(log.values(first * bins, last * bins), bins)

            yield from write_segment(target, tags, log.width // bins, bins, log.steps(), log.times(), read)
        unreadable = not log.width and path.stat().st_size > HEADER_BYTES
    if not unreadable:  # what is behind a damaged header may be worth a closer look; readers take it for empty
        opening.remove(path, depth=layout.IN_BRANCH)


def _series_first(values: Float32, bins: int) -> Float32:
    """Rows of columns as columns of rows: (rows, columns * bins) to (columns, rows * bins)."""
    rows, numbers = values.shape
    out: Float32 = lent_memory.empty((numbers // bins, rows, bins), np.float32)
    out[:] = values.reshape(rows, numbers // bins, bins).swapaxes(0, 1)
    return out.reshape(numbers // bins, rows * bins)


def merge_due(segments: Sequence[tuple[str, Segment]]) -> list[str]:
    """The names of the segments to merge next, none or at least eight neighbours.

    Args:
        segments: Those of one branch, oldest first.
    """
    size = FAN_IN
    due: list[str] = []
    while size <= MAX_ROWS and not due:
        tail = len(segments)
        while tail and segments[tail - 1][1].rows < size:
            tail -= 1
        waiting = segments[tail:]
        reached = sum(segment.rows for _, segment in waiting) >= size
        if len(waiting) >= MAX_WAITING or (len(waiting) >= FAN_IN and reached):
            due = [name for name, _ in waiting]
        size *= FAN_IN
    return due


def merge(folder: Path, names: Sequence[str], tags: Sequence[str], bins: int) -> Iterator[None]:
    """Turn neighbouring segments into one and delete them."""
    sources = [(folder / name, read_segment(folder / name)) for name in names]
    width = max(segment.columns for _, segment in sources)
    steps, times = [], []
    for path, _ in sources:
        with BlockFile(block_path(path, 0), bins=bins) as block:
            steps.append(block.steps())
            times.append(block.times())

    def read(first: int, last: int) -> Float32:
        rows = sum(segment.rows for _, segment in sources)
        out: Float32 = lent_memory.empty((last - first, rows * bins), np.float32)
        out[:] = MISSING
        place = 0
        for path, segment in sources:
            size = segment.rows * bins
            _copy_columns(path, segment, first, min(last, segment.columns), out[:, place : place + size])
            place += size
        return out

    first, last = layout.covered(names[0]), layout.covered(names[-1])
    assert first is not None
    assert last is not None
    target = folder / layout.segment_name(first[0], last[1])
    yield from write_segment(target, tags, width, bins, _joined(steps), _joined(times), read)
    for name in names:
        opening.remove(folder / name, depth=layout.IN_BRANCH)
        yield


def _joined(pieces: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return np.concatenate(pieces, out=lent_memory.empty((sum(map(len, pieces)),), pieces[0].dtype))


def _copy_columns(path: Path, segment: Segment, first: int, last: int, out: Float32) -> None:
    column = first
    while column < last:
        number, place = divmod(column, segment.block_columns)
        with BlockFile(block_path(path, number), bins=segment.bins) as block:
            for at in range(place, min(place + last - column, segment.block_columns)):
                out[column - first] = block.column(at)
                column += 1
