"""Reads one table of a run, whatever the writer is doing meanwhile.

A table is its logs and segments in order, on each branch of the line that is asked for. They are listed anew for every
question; a file that was superseded between the listing and the reading makes the question be asked again, and one that
is damaged or was never copied is left out and named in `problems`.
"""

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from sonde.core.errors import FormatError
from sonde.core.frames import MISSING, Float32, is_missing
from sonde.core.records import Float64, Int64, Window
from sonde.store import layout
from sonde.store.column_index import ColumnIndex
from sonde.store.pyramid import BASE_ROWS, Means, Newest, Pyramid, newest
from sonde.store.row_log import RowLog
from sonde.store.segments import BlockFile, Segment, block_path, read_segment
from sonde.store.zoom import join, pick, single, zoom

T = TypeVar("T")

_TRIES = 1000
_FREE_BYTES = 256 << 20
_MOST_PACKED = 1000
# Cells of several columns that are read only to be summed up: of the rows that are shown (0.1 s), and of a segment of
# which few are (64 MB).
_CELLS_SHOWN, _CELLS_AT_ONCE = 1 << 22, 1 << 24
_COLUMN_BYTES = 40  # in a footer and the header of a page, however well the column packs
_GOES_BACK = "its steps go back, which those of one line never do."
_LAST_STEP = np.iinfo(np.int64).max


class Stretch(NamedTuple):
    """The steps of one branch that belong to a line: those below `end_step`."""

    branch: int
    end_step: int


WHOLE = (Stretch(0, int(_LAST_STEP)),)


class Rows(NamedTuple):
    """Some columns of a table: `values` has a row a series, each as long as `step` times the table's bins."""

    step: Int64
    time: Float64
    values: Float32


@dataclass(frozen=True, slots=True)
class Part:
    """A log or a segment, with the step at which its line leaves the branch."""

    path: Path
    end_step: int
    branch: int

    @property
    def is_log(self) -> bool:
        """Whether it is a log."""
        return self.path.suffix == ".log"


# Segments never change, but a run may be deleted and recorded anew at the same place: the identity of the file is part
# of the key.
@functools.lru_cache(maxsize=4096)
def _segment_of(path: Path, _: tuple[int, int]) -> Segment:
    return read_segment(path)


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat(follow_symlinks=False)
    return status.st_ino, status.st_mtime_ns


@functools.lru_cache(maxsize=256)
def _ticks_of(path: Path, _: tuple[int, int], rows: int) -> tuple[Int64, Float64]:
    """Step and time of every 64th row of a segment, and of its last: some 60 kB of the longest there is."""
    file = block_path(path, 0)
    with _block(file, 1) as block:
        if block.num_rows != rows:
            raise FormatError(f"it has {block.num_rows} rows, its {layout.SEGMENT} says {rows}.")
        step, time = block.steps(), block.times()
    at = np.unique(np.append(np.arange(0, rows, BASE_ROWS), rows - 1))
    return step[at], time[at]


_MOST_FOOTERS = 64
_footers: dict[tuple[str, tuple[int, int]], Any] = {}
_footers_lock = threading.Lock()


def _block(path: Path, bins: int) -> BlockFile:
    """A block, opened once where its footer is not known yet."""
    key = str(path), _identity(path)
    with _footers_lock:
        footer = _footers.pop(key, None)  # and last again below: the one that was not used for longest goes first
    block = BlockFile(path, bins=bins, footer=footer)
    with _footers_lock:
        _footers[key] = block.footer
        while len(_footers) > _MOST_FOOTERS:
            del _footers[next(iter(_footers))]
    return block


def _segment(path: Path) -> Segment:
    return _segment_of(path, _identity(path / layout.SEGMENT))


class _Question:
    """What holds for the parts of an answer together: they are in order, and as large as their files can stand for.

    A column that never changes packs well, but the times of the rows do not. A description and a footer that agree on a
    billion rows are a few hundred bytes.
    """

    def __init__(self) -> None:
        self._left = _FREE_BYTES
        self._last: int | None = None

    def take(self, asked: int, stored: int) -> None:
        """Count the bytes of memory that a part asks for.

        Raises:
            FormatError: it is more than its files can stand for.
        """
        asked = max(0, asked - _MOST_PACKED * stored)
        if asked > self._left:
            raise FormatError(f"it claims to hold far more than fits into the {stored:,} bytes of its files.")
        self._left -= asked

    def follow(self, step: Int64) -> None:
        """Look at the steps of the next part.

        Raises:
            FormatError: they go back, which those of one line never do.
        """
        if len(step):
            if self._last is not None and step[0] < self._last:
                raise FormatError(_GOES_BACK)
            self._last = int(step[-1])


class TableReader:
    """One table of a run.

    Args:
        folder: The table's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.columns = ColumnIndex(folder)
        self._problems: dict[str, str] = {}

    @property
    def problems(self) -> dict[str, str]:
        """Pieces that could not be read so far, and why."""
        found = dict(self._problems)
        if self.columns.problem:
            found[str(self._folder / layout.COLUMNS)] = self.columns.problem
        return found

    def note(self, path: Path, problem: str) -> None:
        """Remember a piece that could not be read, and why."""
        self._problems[str(path)] = problem

    @property
    def name(self) -> str:
        """The table's name."""
        return self._folder.name

    @property
    def bins(self) -> int:
        """Numbers in each cell: 1 for plain series."""
        return self.columns.bins

    def parts(self, line: Sequence[Stretch]) -> list[Part]:
        """The logs and segments of a line, oldest first."""
        found: list[Part] = []
        for stretch in line:
            folder = layout.branch_folder(self._folder, stretch.branch)
            try:
                names = layout.parts(folder)
            except OSError as error:
                self.note(folder, error.strerror or str(error))
                continue
            found.extend(Part(folder / name, stretch.end_step, stretch.branch) for name in names)
        return found

    def rows(self, columns: Sequence[int], line: Sequence[Stretch], start: int | None, end: int | None) -> Rows:
        """Some columns, steps `start` to `end` included; `MISSING` where nothing was measured."""
        return self._again(lambda: self._rows(columns, line, start, end))

    def _rows(self, columns: Sequence[int], line: Sequence[Stretch], start: int | None, end: int | None) -> Rows:
        pieces = [Rows(np.empty(0, np.int64), np.empty(0), np.empty((len(columns), 0), np.float32))]
        question = _Question()
        for part in self.parts(line):
            piece = self._guard(part, functools.partial(self._next_rows, part, columns, start, end, question))
            if piece is not None and len(piece.step):
                pieces.append(piece)
        if len(pieces) == 2:
            return pieces[1]
        return Rows(*(np.concatenate([piece[i] for piece in pieces], axis=-1) for i in range(3)))

    def _next_rows(
        self, part: Part, columns: Sequence[int], start: int | None, end: int | None, question: _Question
    ) -> Rows | None:
        rows = self._part_rows(part, columns, start, end, question)
        if rows is not None:
            question.follow(rows.step)
        return rows

    def _part_rows(
        self, part: Part, columns: Sequence[int], start: int | None, end: int | None, question: _Question
    ) -> Rows | None:
        last = part.end_step - 1 if end is None else min(end, part.end_step - 1)
        if part.is_log:
            with RowLog(part.path) as log:
                return _cut(self._log_rows(log, columns), start, last, self.bins)
        segment = self._segment(part)
        if segment.first_step > last or (start is not None and segment.last_step < start):
            return None
        return _cut(self._segment_rows(part.path, segment, columns, question), start, last, self.bins)

    def _segment(self, part: Part) -> Segment:
        segment = _segment(part.path)
        if segment.bins != self.bins:
            raise FormatError(f"it has {segment.bins} numbers a tag, its table {self.bins}.")
        return segment

    def _log_rows(self, log: RowLog, columns: Sequence[int]) -> Rows:
        bins = self.bins
        if log.width % bins:
            raise FormatError(f"its rows have {log.width} numbers, its table has {bins} a tag.")
        values = np.full((len(columns), len(log) * bins), MISSING, np.float32)
        if len(columns) > 1:
            low, high = min(columns) * bins, (max(columns) + 1) * bins
            block = log.values(low, high)
            for i, column in enumerate(columns):
                if (column + 1) * bins <= log.width:
                    values[i] = block[:, column * bins - low : (column + 1) * bins - low].reshape(-1)
        elif columns and (columns[0] + 1) * bins <= log.width:
            values[0] = log.values(columns[0] * bins, (columns[0] + 1) * bins).reshape(-1)
        return Rows(log.steps(), log.times(), values)

    def _segment_rows(self, path: Path, segment: Segment, columns: Sequence[int], question: _Question) -> Rows:
        by_block = _by_block(segment, columns) or {0: []}  # the steps and times are in every block
        files = [block_path(path, number) for number in by_block]
        stored = sum(file.stat(follow_symlinks=False).st_size for file in files)
        question.take(segment.rows * (16 + 4 * self.bins * len(columns)), stored)
        values = np.full((len(columns), segment.rows * self.bins), MISSING, np.float32)
        step = time = None
        for file, wanted in zip(files, by_block.values(), strict=True):
            with _block(file, self.bins) as block:
                if block.num_rows != segment.rows:
                    raise FormatError(f"it has {block.num_rows} rows, its {layout.SEGMENT} says {segment.rows}.")
                if step is None:
                    step, time = block.steps(), block.times()
                for i, place in wanted:
                    values[i] = block.column(place)
        assert step is not None
        assert time is not None
        return Rows(step, time, values)

    def _segment_column(self, path: Path, segment: Segment, column: int, question: _Question) -> tuple[Int64, Float32]:
        """The steps and values of one series, without the times, which no picture needs."""
        number, place = divmod(column, segment.block_columns)
        file = block_path(path, number)
        question.take(segment.rows * 12, file.stat(follow_symlinks=False).st_size)
        with _block(file, 1) as block:
            if block.num_rows != segment.rows:
                raise FormatError(f"it has {block.num_rows} rows, its {layout.SEGMENT} says {segment.rows}.")
            step, values = block.steps(), block.column(place)
        _check_order(step)
        return step, values

    def window(self, column: int, line: Sequence[Stretch], start: int | None, end: int | None, points: int) -> Window:
        """A series in at most `points` buckets."""
        return self._again(lambda: self._window(column, line, start, end, points))

    def _window(self, column: int, line: Sequence[Stretch], start: int | None, end: int | None, points: int) -> Window:
        parts = self.parts(line)
        max_rows = max(1, self._rows_between(parts, start, end) // points)
        pieces = []
        question = _Question()
        for part in parts:
            read = functools.partial(self._next_window, part, column, start, end, max_rows, question)
            piece = self._guard(part, read)
            if piece is not None:
                pieces.append(piece)
        return zoom(join(pieces), points)

    def _rows_between(self, parts: Sequence[Part], start: int | None, end: int | None) -> int:
        """About how many rows lie between two steps: exact at the ends, in proportion inside a segment."""
        total = 0
        for part in parts:
            if part.is_log:
                counted = self._guard(part, functools.partial(self._log_length, part, start, end))
                total += counted or 0
                continue
            segment = self._guard(part, functools.partial(self._segment, part))
            if segment is None:
                continue
            low = max(segment.first_step, segment.first_step if start is None else start)
            high = min(segment.last_step, part.end_step - 1, segment.last_step if end is None else end)
            if high >= low:
                total += int(segment.rows * (high - low + 1) / (segment.last_step - segment.first_step + 1))
        return total

    def _log_length(self, part: Part, start: int | None, end: int | None) -> int:
        last = part.end_step - 1 if end is None else min(end, part.end_step - 1)
        with RowLog(part.path) as log:
            if start is None and last >= WHOLE[0].end_step - 1:
                return len(log)
            steps = log.steps()
        low = 0 if start is None else int(np.searchsorted(steps, start, side="left"))
        return max(0, int(np.searchsorted(steps, last, side="right")) - low)

    def _next_window(
        self, part: Part, column: int, start: int | None, end: int | None, max_rows: int, question: _Question
    ) -> Window | None:
        window = self._part_window(part, column, start, end, max_rows, question)
        if window is not None:
            _check_order(window.step)
            question.follow(window.step)
        return window

    def _part_window(
        self, part: Part, column: int, start: int | None, end: int | None, max_rows: int, question: _Question
    ) -> Window | None:
        if not part.is_log:
            segment = self._segment(part)
            last = part.end_step - 1 if end is None else min(end, part.end_step - 1)
            if (
                column >= segment.columns
                or segment.first_step > last
                or (start is not None and segment.last_step < start)
            ):
                return None
            if max_rows >= BASE_ROWS and (
                window := self._level(part.path, segment, column, start, last, max_rows, question)
            ):
                return window
        if part.is_log:
            rows = self._part_rows(part, [column], start, end, question)
            return None if rows is None else single(rows.step, rows.values[0])
        step, values = self._segment_column(part.path, segment, column, question)
        low, high = _span(step, start, last)
        return single(step[low:high], values[low:high])

    def _level(
        self,
        path: Path,
        segment: Segment,
        column: int,
        start: int | None,
        last: int,
        max_rows: int,
        question: _Question,
    ) -> Window | None:
        number, place = divmod(column, segment.block_columns)
        try:
            with Pyramid(block_path(path, number, "pyramid")) as pyramid:
                if pyramid.rows != segment.rows or place >= pyramid.num_columns:
                    return None
                window, bucket = pyramid.level(place, max_rows)
        except (OSError, ValueError):
            return None  # torn or not copied: the rows are read instead
        if (start is None or start <= segment.first_step) and last >= segment.last_step:
            return pick(window, np.flatnonzero(window.finite + window.nonfinite))
        # The window ends inside of the segment: whole buckets where they fit, rows at the ends.
        step, values = self._segment_column(path, segment, column, question)
        low, high = _span(step, start, last)
        first = -(-low // bucket)
        end = len(window.step) if high == segment.rows else high // bucket
        if first >= end:
            return None
        inside = np.flatnonzero(window.finite[first:end] + window.nonfinite[first:end]) + first
        before, behind = slice(low, first * bucket), slice(end * bucket, high)
        return join(
            [
                single(step[before], values[before]),
                pick(window, inside),
                single(step[behind], values[behind]),
            ]
        )

    def means(
        self, columns: Sequence[int], line: Sequence[Stretch], start: int | None, end: int | None, points: int
    ) -> Means:
        """Several columns in buckets that are the same for all, as fine as a picture of so many points needs.

        There may be a few more buckets than points. Where rows would be too many to read, buckets are 64 rows, however
        many points are asked for; those at the ends of the window may reach beyond it.
        """
        return self._again(lambda: self._means(columns, line, start, end, points))

    def _means(
        self, columns: Sequence[int], line: Sequence[Stretch], start: int | None, end: int | None, points: int
    ) -> Means:
        parts = self.parts(line)
        num_rows = self._rows_between(parts, start, end)
        max_rows = max(1, num_rows // points)
        if num_rows * len(columns) > _CELLS_SHOWN:
            max_rows = max(max_rows, BASE_ROWS)
        question = _Question()
        pieces = []
        for part in parts:
            read = functools.partial(self._part_means, part, columns, start, end, max_rows, question)
            piece = self._guard(part, read)
            if piece is not None and len(piece.step):
                pieces.append(piece)
        if len(pieces) == 1:
            return pieces[0]
        empty = np.empty((len(columns), 0), np.float32)
        pieces.insert(0, Means(np.empty(0, np.int64), empty, empty, empty))
        return Means(*(np.concatenate([piece[i] for piece in pieces], axis=-1) for i in range(4)))

    def _part_means(
        self,
        part: Part,
        columns: Sequence[int],
        start: int | None,
        end: int | None,
        max_rows: int,
        question: _Question,
    ) -> Means | None:
        if not part.is_log:
            segment = self._segment(part)
            last = part.end_step - 1 if end is None else min(end, part.end_step - 1)
            if segment.first_step > last or (start is not None and segment.last_step < start):
                return None
            is_large = segment.rows * len(columns) > _CELLS_AT_ONCE
            if (max_rows >= BASE_ROWS or is_large) and (
                # Of half a column at most: a bucket is drawn where it begins.
                found := self._level_means(part.path, segment, columns, max_rows // 2)
            ):
                question.follow(found.step)
                low = 0 if start is None else max(0, int(np.searchsorted(found.step, start, side="right")) - 1)
                high = int(np.searchsorted(found.step, last, side="right"))
                return Means(found.step[low:high], *(figures[:, low:high] for figures in found[1:]))
        rows = self._part_rows(part, columns, start, end, question)
        if rows is None:
            return None
        question.follow(rows.step)
        finite = np.isfinite(rows.values)
        nonfinite = ~finite & ~is_missing(rows.values)
        return Means(rows.step, rows.values, finite.astype(np.float32), nonfinite.astype(np.float32))

    def _level_means(self, path: Path, segment: Segment, columns: Sequence[int], max_rows: int) -> Means | None:
        """All columns from the pyramids of their blocks; None where one of these cannot be read."""
        wanted = np.asarray(columns)
        at = np.flatnonzero(wanted < segment.columns)
        number, place = np.divmod(wanted[at], segment.block_columns)
        found: Means | None = None
        try:
            for block in np.unique(number).tolist():
                own = number == block
                with Pyramid(block_path(path, block, "pyramid")) as pyramid:
                    if pyramid.rows != segment.rows:
                        return None
                    part = pyramid.means(place[own], max_rows)
                if found is None:
                    _check_order(part.step)
                    shape = len(columns), len(part.step)
                    found = Means(part.step, *(np.full(shape, fill, np.float32) for fill in (np.nan, 0, 0)))
                for whole, figures in zip(found[1:], part[1:], strict=True):
                    whole[at[own]] = figures
        except (OSError, ValueError):
            return None  # torn or not copied: the rows are read instead
        return found

    def clock(self, line: Sequence[Stretch]) -> tuple[Int64, Float64]:
        """When steps were: step and time of the first row of each 64 and of the last of each part; of logs all.

        Both rise but for clocks that were set back. What lies between two of them is interpolated.
        """
        return self._again(lambda: self._clock(line))

    def _clock(self, line: Sequence[Stretch]) -> tuple[Int64, Float64]:
        steps, times = [np.empty(0, np.int64)], [np.empty(0)]
        for part in self.parts(line):
            piece = self._guard(part, functools.partial(self._part_clock, part))
            if piece is not None:
                steps.append(piece[0])
                times.append(piece[1])
        return np.concatenate(steps), np.concatenate(times)

    def _part_clock(self, part: Part) -> tuple[Int64, Float64]:
        if part.is_log:
            with RowLog(part.path) as log:
                step, time = log.steps(), log.times()
        else:
            segment = self._segment(part)
            step, time = _ticks_of(part.path, _identity(part.path / layout.SEGMENT), segment.rows)
        keep = step < part.end_step
        return step[keep], time[keep]

    def latest(self, columns: Sequence[int], line: Sequence[Stretch]) -> Newest:
        """The newest measured point of some columns."""
        return self._again(lambda: self._latest(columns, line))

    def _latest(self, columns: Sequence[int], line: Sequence[Stretch]) -> Newest:
        found = Newest(
            np.full(len(columns), MISSING, np.float32), np.zeros(len(columns), np.int64), np.zeros(len(columns))
        )
        open_ = np.ones(len(columns), bool)
        for part in reversed(self.parts(line)):
            self._guard(part, functools.partial(self._fill_latest, part, columns, found, open_))
            if not open_.any():
                break
        return found

    def _fill_latest(self, part: Part, columns: Sequence[int], found: Newest, open_: Any) -> None:
        wanted = np.flatnonzero(open_)
        for places, piece in self._latest_of(part, [columns[i] for i in wanted.tolist()]):
            at = wanted[places]
            there = ~is_missing(piece.value)
            at = at[there]
            found.value[at], found.step[at], found.time[at] = piece.value[there], piece.step[there], piece.time[there]
            open_[at] = False

    def _latest_of(self, part: Part, columns: Sequence[int]) -> Iterator[tuple[list[int], Newest]]:
        """The newest points of some columns of a part, with their places among these columns."""
        if not part.is_log:
            segment = self._segment(part)
            if segment.last_step < part.end_step:
                for number, wanted in _by_block(segment, columns).items():
                    yield [i for i, _ in wanted], self._newest_in(part.path, segment, number, wanted)
                return
        rows = self._part_rows(part, columns, None, None, _Question())
        if rows is not None and len(rows.step):
            yield list(range(len(columns))), newest(rows.step, rows.time, rows.values)

    def _newest_in(self, path: Path, segment: Segment, number: int, wanted: Sequence[tuple[int, int]]) -> Newest:
        try:
            with Pyramid(block_path(path, number, "pyramid")) as pyramid:
                at = np.array([place for _, place in wanted])
                if at.max() >= pyramid.num_columns:
                    raise ValueError("it has fewer columns than its segment says.")
                points = pyramid.newest()
                return Newest(points.value[at], points.step[at], points.time[at])
        except (OSError, ValueError):  # torn or not copied: the rows are read instead
            columns = [number * segment.block_columns + place for _, place in wanted]
            rows = self._segment_rows(path, segment, columns, _Question())
            return newest(rows.step, rows.time, rows.values)

    def newest(self, line: Sequence[Stretch]) -> Newest:
        """The newest measured point of every column."""
        return self._again(lambda: self._newest(line))

    def measured(self, lines: Sequence[Sequence[Stretch]]) -> list[str]:
        """The tags of the columns that have a value on one of these lines."""
        tags = self.columns.tags()
        there = np.zeros(len(tags), bool)
        for line in lines:
            values = self.newest(line).value[: len(tags)]  # columns may have come since
            there[: len(values)] |= ~is_missing(values)
            if there.all():
                break
        return [tag for tag, is_there in zip(tags, there, strict=True) if is_there]

    def _newest(self, line: Sequence[Stretch]) -> Newest:
        width = len(self.columns.tags())
        found = Newest(np.full(width, MISSING, np.float32), np.zeros(width, np.int64), np.zeros(width))
        open_ = np.ones(width, bool)
        for part in reversed(self.parts(line)):
            self._guard(part, functools.partial(self._fill_newest, part, found, open_))
            if not open_.any():
                break
        return found

    def _fill_newest(self, part: Part, found: Newest, open_: Any) -> None:
        for first, piece in self._part_newest(part):
            last = min(first + len(piece.value), len(open_))
            fits = piece.value[: last - first]
            take = np.flatnonzero(open_[first:last] & ~is_missing(fits))
            at = take + first
            found.value[at], found.step[at], found.time[at] = fits[take], piece.step[take], piece.time[take]
            open_[at] = False

    def _part_newest(self, part: Part) -> Iterator[tuple[int, Newest]]:
        if part.is_log:
            with RowLog(part.path) as log:
                yield from _newest_of_log(log, part.end_step)
            return
        segment = self._segment(part)
        for number in range(segment.num_blocks):
            first = number * segment.block_columns
            if segment.last_step < part.end_step:
                try:
                    with Pyramid(block_path(part.path, number, "pyramid")) as pyramid:
                        yield first, pyramid.newest()
                    continue
                except (OSError, ValueError):
                    pass  # torn or not copied: read the rows themselves
            columns = range(first, min(first + segment.block_columns, segment.columns))
            rows = _cut(self._segment_rows(part.path, segment, columns, _Question()), None, part.end_step - 1, 1)
            if len(rows.step):
                yield first, newest(rows.step, rows.time, rows.values)

    def last_step(self, line: Sequence[Stretch]) -> int | None:
        """The newest step that has a row."""
        return self._again(lambda: self._last_step(line))

    def _last_step(self, line: Sequence[Stretch]) -> int | None:
        for part in reversed(self.parts(line)):
            rows = self._guard(part, functools.partial(self._part_last_step, part))
            if rows is not None:
                return rows
        return None

    def _part_last_step(self, part: Part) -> int | None:
        if part.is_log:
            with RowLog(part.path) as log:
                steps = log.steps()
        else:
            segment = self._segment(part)
            if segment.last_step < part.end_step:
                return segment.last_step
            steps = self._segment_rows(part.path, segment, (), _Question()).step
        steps = steps[steps < part.end_step]
        return int(steps[-1]) if len(steps) else None

    def num_columns(self, line: Sequence[Stretch]) -> int:
        """The most columns that any log or segment of a line has: as many tags must be known."""
        widths = [self._guard(part, functools.partial(self._part_columns, part)) for part in self.parts(line)]
        return max((width for width in widths if width is not None), default=0)

    def _part_columns(self, part: Part) -> int:
        if not part.is_log:
            return self._segment(part).columns
        with RowLog(part.path) as log:
            return log.width // self.bins

    def rows_after(self, line: Sequence[Stretch], seen: dict[int, int]) -> Iterator[tuple[int, Rows]]:
        """What came after the rows that were `seen` (a count for each branch, updated): (columns, rows) in pieces."""
        skipped: dict[int, int] = {}
        order = _Question()
        for part in self.parts(line):
            before = skipped.get(part.branch, 0)
            try:
                count, columns, rows = self._tail(part, max(0, seen.get(part.branch, 0) - before))
                if rows is not None:
                    order.follow(rows.step)
            except FileNotFoundError:
                if part.path.name not in layout.parts(part.path.parent):
                    return  # superseded since it was listed; the next poll sees the segment
                self.note(part.path, "a file is missing")
                continue
            except (OSError, ValueError) as error:
                self.note(part.path, _why(error))
                continue
            skipped[part.branch] = before + count
            if rows is not None:
                seen[part.branch] = max(seen.get(part.branch, 0), before + count)
                yield columns, rows

    def _tail(self, part: Part, skip: int) -> tuple[int, int, Rows | None]:
        if part.is_log:
            with RowLog(part.path) as log:
                count, columns = len(log), log.width // self.bins
                rows = self._log_rows(log, range(columns)) if count > skip else None
        else:
            segment = self._segment(part)
            count, columns = segment.rows, segment.columns
            _check_width(part.path, segment)
            rows = self._segment_rows(part.path, segment, range(columns), _Question()) if count > skip else None
        if rows is None:
            return count, columns, None
        rows = Rows(rows.step[skip:], rows.time[skip:], rows.values[:, skip * self.bins :])
        return count, columns, _cut(rows, None, part.end_step - 1, self.bins)

    def _guard(self, part: Part, read: Callable[[], T]) -> T | None:
        """Read a part; None where it is damaged."""
        try:
            return read()
        except FileNotFoundError:
            if part.path.name not in layout.parts(part.path.parent):
                raise  # it was superseded: ask again
            self.note(part.path, "a file is missing")  # only half of the run was copied
            return None
        except (OSError, ValueError) as error:
            self.note(part.path, _why(error))
            return None

    def _again(self, ask: Callable[[], T]) -> T:
        for _ in range(_TRIES - 1):
            try:
                return ask()
            except FileNotFoundError:  # superseded between the listing and the reading
                continue
        return ask()


def _why(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _by_block(segment: Segment, columns: Sequence[int]) -> dict[int, list[tuple[int, int]]]:
    """By block of a segment: which of the columns it holds, each as its place among them and in the block."""
    found: dict[int, list[tuple[int, int]]] = {}
    for i, column in enumerate(columns):
        if column < segment.columns:
            number, place = divmod(column, segment.block_columns)
            found.setdefault(number, []).append((i, place))
    return found


def _check_width(path: Path, segment: Segment) -> None:
    """Before as many things are made as the segment says it has columns."""
    stored = sum(block_path(path, number).stat(follow_symlinks=False).st_size for number in range(segment.num_blocks))
    if segment.columns * _COLUMN_BYTES > stored:
        raise FormatError(f"it claims {segment.columns:,} columns, which do not fit into {stored:,} bytes.")


def _check_order(step: Int64) -> None:
    if bool((step[1:] < step[:-1]).any()):
        raise FormatError(_GOES_BACK)


def _span(step: Int64, start: int | None, last: int) -> tuple[int, int]:
    """The rows from `start` to `last`, both included: the first, and one behind the last."""
    low = 0 if start is None else int(np.searchsorted(step, start, side="left"))
    return low, int(np.searchsorted(step, last, side="right"))


def _cut(rows: Rows, start: int | None, last: int, bins: int) -> Rows:
    _check_order(rows.step)
    low, high = _span(rows.step, start, last)
    if low == 0 and high == len(rows.step):
        return rows
    return Rows(rows.step[low:high], rows.time[low:high], rows.values[:, low * bins : high * bins])


def _newest_of_log(log: RowLog, end_step: int) -> Iterator[tuple[int, Newest]]:
    """BlockFile by block of columns, so that a table of a million columns needs no memory to speak of."""
    step, time = log.steps(), log.times()
    keep = step < end_step
    if not keep.any():
        return
    step, time = step[keep], time[keep]
    per = max(1, min(log.width, (4 << 20) // len(step)))
    for first in range(0, log.width, per):
        values = log.values(first, first + per)[keep]
        yield first, newest(step, time, values.T)
