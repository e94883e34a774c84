"""Sorts the numbers of a log by step, however many there are and in whatever order they were logged."""

import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from sonde.store.importing.foreign import Logged, Restart

_BATCH = 10_000
_LAST_STEP = (1 << 62) - 1  # one more than the last is still a step
_YEAR_10_000 = 253_402_300_800


class Extent(NamedTuple):
    """What a name has."""

    num: int
    first_step: int
    last_step: int


class Gathered:
    """The numbers of a log, in a temporary file: memory stays bounded.

    A number of a name and step that comes twice counts as it came last. A name that goes back to an earlier step was
    started again: its numbers from there on are forgotten.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="sonde-import-")
        self._base = sqlite3.connect(str(Path(self._folder.name) / "points.sqlite"), isolation_level=None)
        self._base.execute("PRAGMA journal_mode = OFF")
        self._base.execute("PRAGMA synchronous = OFF")
        # A NaN is NULL in SQLite.
        self._base.execute(
            "CREATE TABLE points (step INTEGER, name INTEGER, value REAL, time REAL, PRIMARY KEY (step, name)) "
            "WITHOUT ROWID"
        )
        self._numbers: dict[str, int] = {}
        self._latest: dict[int, int] = {}
        self._waiting: list[tuple[int, int, float, float | None]] = []
        self.num_repeated = 0
        """Numbers that were forgotten since the training began again before them."""
        self.num_left_out = 0
        """Numbers of steps below zero or beyond 62 bits, which nothing can be done with."""

    def take(self, entries: Iterable[Logged | Restart]) -> None:
        """Read all of a log."""
        self._base.execute("BEGIN")
        for entry in entries:
            if isinstance(entry, Restart):
                self._forget(entry.step)
                continue
            if not 0 <= entry.step <= _LAST_STEP:
                self.num_left_out += 1
                continue
            name = self._numbers.setdefault(entry.name, len(self._numbers))
            if entry.step < self._latest.get(name, 0):
                self._forget(entry.step, name)
            self._latest[name] = entry.step
            # A time that is none would be one that no calendar has.
            time = entry.time if entry.time is not None and 0 <= entry.time < _YEAR_10_000 else None
            self._waiting.append((entry.step, name, entry.value, time))
            if len(self._waiting) >= _BATCH:
                self._write()
        self._write()
        self._base.execute("COMMIT")

    def extents(self) -> dict[str, Extent]:
        """What every name has; those of which nothing is left are not among them."""
        names = {number: name for name, number in self._numbers.items()}
        rows = self._base.execute("SELECT name, count(*), min(step), max(step) FROM points GROUP BY name")
        found = {names[name]: Extent(*rest) for name, *rest in rows}
        return {name: found[name] for name in self._numbers if name in found}

    def first_time(self) -> float | None:
        """When the first of them was logged; None where the log does not say."""
        found: float | None = self._base.execute("SELECT min(time) FROM points").fetchone()[0]
        return found

    def series(self, name: str) -> Iterator[Logged]:
        """The numbers of one name, steps rising."""
        query = "SELECT step, value, time FROM points WHERE name = ? ORDER BY step"
        for step, value, time in self._base.execute(query, (self._numbers[name],)):
            yield Logged(name, step, _value(value), time)

    def move(self, name: str, points: Iterable[Logged]) -> None:
        """Give a name other numbers than it has."""
        number = self._numbers[name]
        moved = [(point.step, number, point.value, point.time) for point in points]
        self._base.execute("DELETE FROM points WHERE name = ?", (number,))
        self._base.executemany("INSERT OR REPLACE INTO points VALUES (?, ?, ?, ?)", moved)

    def steps(self) -> Iterator[tuple[int, list[Logged]]]:
        """Each step that has numbers, with all of them."""
        names = {number: name for name, number in self._numbers.items()}
        now: list[Logged] = []
        for step, name, value, time in self._base.execute("SELECT * FROM points ORDER BY step, name"):
            if now and now[0].step != step:
                yield now[0].step, now
                now = []
            now.append(Logged(names[name], step, _value(value), time))
        if now:
            yield now[0].step, now

    def close(self) -> None:
        """Delete the file."""
        self._base.close()
        self._folder.cleanup()

    def __enter__(self) -> "Gathered":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _forget(self, step: int, name: int | None = None) -> None:
        self._write()
        if name is None:
            gone = self._base.execute("DELETE FROM points WHERE step >= ?", (step,))
        else:
            gone = self._base.execute("DELETE FROM points WHERE step >= ? AND name = ?", (step, name))
        self.num_repeated += gone.rowcount

    def _write(self) -> None:
        self._base.executemany("INSERT OR REPLACE INTO points VALUES (?, ?, ?, ?)", self._waiting)
        self._waiting.clear()


def _value(value: float | None) -> float:
    return float("nan") if value is None else value
