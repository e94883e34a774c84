"""A run in memory: the slow, obvious store that the others are compared with."""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from sonde.core import strict_json
from sonde.core.errors import TagNotFound
from sonde.core.frames import Frame, is_missing
from sonde.core.records import Branch, Event, Point, Series, Window


class MemoryRun:
    """Recorder and record in one: frames in a list, every question answered by a walk over all of them.

    It fits wherever a `Recorder` or a `Record` is asked for, needs no folder, and grows without bound.

    Example:
        >>> from sonde.core.frames import Columns
        >>> run, columns = MemoryRun(), Columns("step", ("loss",))
        >>> for step, loss in enumerate([3.0, 1.0, 2.0]):
        ...     run.append(Frame(columns, step, 0.0, np.array([loss], np.float32)))
        >>> run.series("loss").value
        array([3., 1., 2.], dtype=float32)
    """

    def __init__(self) -> None:
        self._rows: list[tuple[int, Frame]] = []  # the branch and the frame, as they came
        self._branches = [Branch(number=0, parent=None, fork_step=0)]
        self._floors: dict[str, int] = {}  # the lowest step of a table's next row on this branch
        self._events: list[Event] = []
        self._closed = False
        self._changed = threading.Condition()

    # What a recorder does.

    def append(self, frame: Frame) -> None:
        """Take one row. A step below the table's last one, or below the branch's first, starts a new branch."""
        if len(frame.values) != frame.columns.width:
            raise ValueError(f"the frame has {len(frame.values)} values for {frame.columns.width} columns.")
        with self._changed:
            if self._closed or not frame.columns.width:
                return
            table, current = frame.columns.table, self._branches[-1]
            floor = self._floors.get(table, current.fork_step if current.number else None)
            if floor is not None and frame.step < floor:
                self._fork(frame.step)
            self._floors[table] = frame.step
            kept = replace(frame, values=np.array(frame.values, np.float32))  # the caller may reuse its array
            self._rows.append((self._branches[-1].number, kept))
            self._changed.notify_all()

    def event(self, kind: str, *, step: int | None = None, data: Mapping[str, Any] | None = None) -> None:
        """Take one event; what comes back is what JSON can say of it."""
        said = strict_json.loads(strict_json.dumps(data or {}))
        with self._changed:
            if not self._closed:
                self._events.append(Event(kind, time.time(), step, said))

    def branch(self, step: int) -> None:
        """Go back: rows from here on belong to a new branch; nothing happens where no row is that far."""
        with self._changed:
            if any(frame.step >= step for frame in self._line(None)):
                self._fork(step)

    def flush(self) -> bool:
        """Everything can be read at once."""
        return True

    def close(self) -> None:
        """Take no more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _fork(self, step: int) -> None:
        self._branches.append(Branch(len(self._branches), self._branches[-1].number, step))
        self._floors.clear()

    # What a record does.

    @property
    def branches(self) -> Sequence[Branch]:
        """All branches; the last is the current one."""
        return list(self._branches)

    def tags(self, pattern: str = "*") -> list[str]:
        """All tags of plain series with a value that match a pattern of `*` and `?`, sorted."""
        tags = {
            tag
            for _, frame in self._rows
            if frame.columns.bins == 1
            for tag, is_gone in zip(frame.columns.tags, is_missing(frame.values), strict=True)
            if not is_gone
        }
        return sorted(tag for tag in tags if fnmatchcase(tag, pattern.replace("[", "[[]")))

    def series(
        self, tag: str, *, start: int | None = None, end: int | None = None, branch: int | None = None
    ) -> Series:
        """The measured points of a tag, `start` to `end` included, on the current line or a branch's."""
        if tag not in self.tags():
            raise TagNotFound(f"the run has no series {tag!r}; it has {', '.join(self.tags()) or 'none yet'}.")
        points = []
        for frame in self._line(branch):
            if frame.columns.bins == 1 and tag in frame.columns.tags:
                value = frame.values[frame.columns.tags.index(tag)]
                inside = (start is None or frame.step >= start) and (end is None or frame.step <= end)
                if inside and not is_missing(value):
                    points.append((frame.step, value, frame.time))
        points.sort(key=lambda point: point[0])
        return Series(
            np.array([step for step, _, _ in points], np.int64),
            np.array([value for _, value, _ in points], np.float32),
            np.array([when for _, _, when in points], np.float64),
        )

    def last(self) -> dict[str, Point]:
        """The newest measured point of every tag."""
        found = {}
        for tag in self.tags():
            step, value, when = self.series(tag)
            if len(step):
                found[tag] = Point(int(step[-1]), float(value[-1]), float(when[-1]))
        return found

    def window(self, tag: str, start: int | None = None, end: int | None = None, points: int = 2000) -> Window:
        """A series in at most `points` buckets."""
        if points < 1:
            raise ValueError(f"`window(points=...)` must be at least 1, got {points}.")
        series = self.series(tag, start=start, end=end)
        size = len(series.step)
        buckets = []
        for places in np.array_split(np.arange(size), min(points, size)) if size else []:
            values = series.value[places].astype(np.float64)
            finite = values[np.isfinite(values)]
            low, mean, high = (finite.min(), finite.mean(), finite.max()) if len(finite) else (np.nan,) * 3
            buckets.append((series.step[places[0]], low, mean, high, len(finite), len(values) - len(finite)))
        kinds = (np.int64, np.float32, np.float32, np.float32, np.int64, np.int64)
        return Window(*(np.array([bucket[i] for bucket in buckets], kind) for i, kind in enumerate(kinds)))

    def events(self, kind: str | None = None) -> list[Event]:
        """Everything that happened, in order, or what is of one kind."""
        return [event for event in self._events if kind in (None, event.kind)]

    def follow(self, *, poll_s: float = 0.5, from_start: bool = True) -> Iterator[Frame]:
        """Rows as they come, until the run is closed; `poll_s` is not needed, new rows wake it."""
        with self._changed:
            new, seen = self._line(None) if from_start else [], len(self._rows)
        while True:
            yield from new
            with self._changed:
                while len(self._rows) == seen:
                    if self._closed:
                        return
                    self._changed.wait()
                new, seen = [frame for _, frame in self._rows[seen:]], len(self._rows)

    def _line(self, branch: int | None) -> list[Frame]:
        """The frames that lead to a branch's end, as they came."""
        number = self._branches[-1].number if branch is None else branch
        if not 0 <= number < len(self._branches):
            raise ValueError(f"`branch` must be 0 to {len(self._branches) - 1} in this run, got {branch}.")
        ends: dict[int, float] = {}
        at: int | None = number
        end = float("inf")
        while at is not None:
            ends[at] = end
            end = min(end, self._branches[at].fork_step)
            at = self._branches[at].parent
        return [frame for number, frame in self._rows if frame.step < ends.get(number, -float("inf"))]
