"""Reads a run: while it is written, after it was killed, copied half-way, or long ended. Needs no torch."""

import contextlib
import fnmatch
import functools
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sonde.core import fragments
from sonde.core.errors import FormatError, StoreError, TagNotFound
from sonde.core.example_losses import ExampleLosses, is_of_examples
from sonde.core.frames import Columns, Float32, Frame, is_missing
from sonde.core.model_table import ModelTable
from sonde.core.printable import one_line
from sonde.core.records import Branch, Ending, Event, Float64, Int64, Point, Series, State, Window
from sonde.store import branches, events, layout, opening, states
from sonde.store.heat import Heat, heat
from sonde.store.table_reader import Stretch, TableReader
from sonde.store.table_view import outer_join
from sonde.store.zoom import single, zoom

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure


def load(run: str | os.PathLike[str]) -> "Run":
    """A recorded run, live or ended.

    Args:
        run: Its folder.

    Raises:
        RunNotFound: there is no run.
        RunUnreadable: it is damaged, or written by a newer Sonde (`SchemaTooNew`).
    """
    return Run(run)


class Run:
    """A run on disk. Every question is answered from the files as they are now; no lock is taken, nothing is written.

    Tags that are asked for one at a time cost one read each; a damaged or missing piece is left out and named in
    `problems`.

    Args:
        path: The run's folder.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.info: Mapping[str, Any] = layout.read_info(self.path)
        """What `run.json` says: configuration, environment, sessions."""
        self._tables: dict[tuple[str, str], TableReader] = {}
        self._problems: dict[str, str] = {}

    @property
    def name(self) -> str:
        """The run's name."""
        return str(self.info.get("name") or self.path.resolve().name)

    @functools.cached_property
    def model(self) -> ModelTable | None:
        """What the model is made of: modules and parameters. None where the run does not say, or not readably.

        Runs that `watch` records say it; of several sessions, that of the newest.
        """
        told = self.info.get("model")
        if told is None:
            return None
        try:
            return ModelTable.from_json(told)
        except FormatError as error:
            self._problems[str(self.path / layout.RUN)] = f"the model table is left out: {error}"
            return None

    @property
    def state(self) -> State:
        """How the run stands, and why."""
        path = self.path / layout.STATE
        said = states.read(self.path, functools.partial(self._problems.__setitem__, str(path)))
        ending = states.ending(self.path, said)
        return State(
            ending=ending,
            reason=str(said.get("reason", "")),
            steps=self.steps,
            updated=said.get("updated", 0.0),
            dropped=said.get("dropped", {}),
        )

    @property
    def steps(self) -> int:
        """The last step on the current line, 0 where nothing was recorded."""
        line = self._line(None)
        return max(
            (step for table in self._all(layout.TABLES) if (step := table.last_step(line)) is not None),
            default=0,
        )

    @property
    def problems(self) -> list[str]:
        """Pieces that could not be read so far, and why."""
        found = dict(self._problems)
        found.update((path, why) for table in self._tables.values() for path, why in table.problems.items())
        return [f"{path}: {why}" for path, why in sorted(found.items())]

    @property
    def unreadable_tables(self) -> list[str]:
        """Tables, or pieces of tables, that could not be read so far, by their path inside of the run."""
        found = {
            path for (folder, _), table in self._tables.items() if folder == layout.TABLES for path in table.problems
        }
        found |= {path for path in self._problems if Path(path).is_relative_to(self.path / layout.TABLES)}
        return sorted(str(Path(path).relative_to(self.path)) for path in found)

    @property
    def branches(self) -> list[Branch]:
        """All lines of steps; the last is the current one."""
        path = self.path / layout.BRANCHES
        return branches.read(self.path, functools.partial(self._problems.__setitem__, str(path)))

    def ranks(self) -> Mapping[int, "Run"]:
        """What each of several processes that trained together recorded, by rank; this run itself is 0.

        Others have their own losses, times and memory. One that left nothing readable is not among them.
        """
        found = {0: self}
        names = self._names(layout.RANKS)  # none of a single process, which is the rule
        for rank in sorted(int(name) for name in names if name.isdecimal() and name.isascii()):
            folder = self.path / layout.RANKS / str(rank)
            if not opening.is_folder(folder, depth=2):
                continue
            try:
                found.setdefault(rank, Run(folder))
            except StoreError as error:
                self._problems[str(folder)] = str(error)
        return found

    def tags(self, pattern: str = "*") -> list[str]:
        """All tags of plain series that match a shell-style pattern (`grad/norm@*`) and have a value, sorted."""
        lines = [self._line(branch.number) for branch in reversed(self.branches)]
        found = {tag for table in self._all(layout.TABLES) for tag in table.measured(lines)}
        return _matching(found, pattern)

    def histogram_tags(self, pattern: str = "*") -> list[str]:
        """All tags of histograms that match a shell-style pattern, sorted."""
        tables = [table for table in self._all(layout.HISTOGRAMS) if not is_of_examples(table.name)]
        return _matching(_tags_of(tables), pattern)

    def has(self, tag: str) -> bool:
        """Whether there is a series of that name, with a value or not yet."""
        return any(table.columns.find(tag) is not None for table in self._all(layout.TABLES))

    def series(
        self, tag: str, *, start: int | None = None, end: int | None = None, branch: int | None = None
    ) -> Series:
        """The measured points of a tag.

        Args:
            tag: For example `loss`.
            start: First step wanted.
            end: Last step wanted, included.
            branch: A branch's number; the current line where left out.

        Raises:
            TagNotFound: the run has no such series.
        """
        steps, times, values = [], [], []
        for table, column in self._find(tag, layout.TABLES):
            rows = table.rows([column], self._line(branch), start, end)
            measured = ~is_missing(rows.values[0])
            steps.append(rows.step[measured])
            times.append(rows.time[measured])
            values.append(rows.values[0][measured])
        if len(steps) == 1:
            return Series(steps[0], values[0], times[0])
        step: Int64 = np.concatenate(steps)
        order = np.argsort(step, kind="stable")
        return Series(step[order], np.concatenate(values)[order], np.concatenate(times)[order])

    def histogram(
        self, tag: str, *, start: int | None = None, end: int | None = None, branch: int | None = None
    ) -> tuple[Int64, Float32, Float64]:
        """The histograms of a tag: steps, counts (a row a step, a column a bin) and times.

        Raises:
            TagNotFound: the run has no such histogram.
        """
        table, column = self._find(tag, layout.HISTOGRAMS)[0]
        rows = table.rows([column], self._line(branch), start, end)
        counts = rows.values[0].reshape(len(rows.step), table.bins)
        measured = ~is_missing(counts[:, 0])
        return rows.step[measured], counts[measured], rows.time[measured]

    def example_losses(self, *, branch: int | None = None) -> list[ExampleLosses]:
        """What each example cost in each evaluation that was given `losses`, oldest first; none where none was.

        Args:
            branch: A branch's number; the current line where left out.
        """
        line = self._line(branch)
        found: list[ExampleLosses] = []
        for table in self._all(layout.HISTOGRAMS):
            if is_of_examples(table.name):
                rows = table.rows([0], line, None, None)
                values = rows.values[0].reshape(len(rows.step), table.bins)
                found += map(ExampleLosses, rows.step.tolist(), values, rows.time.tolist())
        return sorted(found, key=lambda one: (one.step, one.time))

    def window(
        self,
        tag: str,
        start: int | None = None,
        end: int | None = None,
        points: int = 2000,
        *,
        branch: int | None = None,
    ) -> Window:
        """A series in at most `points` buckets, for a picture.

        The cost depends on the points, not on the length of the run.

        Raises:
            TagNotFound: the run has no such series.
        """
        if points < 1:
            raise ValueError(f"`window(points=...)` must be at least 1, got {points}.")
        found = self._find(tag, layout.TABLES)
        if len(found) > 1:  # nobody should, but a tag may be in several tables
            step, value, _ = self.series(tag, start=start, end=end, branch=branch)
            return zoom(single(step, value), points)
        table, column = found[0]
        return table.window(column, self._line(branch), start, end, points)

    def plot(
        self,
        tags: str | Sequence[str] = "loss",
        *,
        start: int | None = None,
        end: int | None = None,
        scale: Literal["linear", "log", "symlog"] = "linear",
    ) -> "Figure":
        """Series as a figure of matplotlib.

        There is a panel for each path and a line for each series, with the band from its lowest to its highest values,
        and a red mark at the foot where a value was NaN or infinite.

        Needs the extra `plot`. Nothing of `pyplot` is touched: save the figure with `savefig`, or let a notebook show
        it.

        Args:
            tags: A pattern (`grad/norm@*`) or the tags themselves, at most 200 series.
            start: First step wanted.
            end: Last step wanted, included.
            scale: Of the values.

        Raises:
            MissingExtra: matplotlib is not installed.
            TagNotFound: nothing matches, or a tag that was named is not in the run.
        """
        from sonde.store.plotting import plot

        return plot(self, tags, start=start, end=end, scale=scale)

    def heat(
        self, tags: Sequence[str], *, start: int | None = None, end: int | None = None, columns: int = 400
    ) -> Heat:
        """Several series as one picture: a row a tag, a column a stretch of steps, the same for all.

        The cost depends on the size of the picture, not on the length of the run. A cell is the mean of its finite
        values; NaN where nothing was measured, infinite where a NaN or an infinite value was. Columns of which no
        series has a value are left out, so that there may be fewer than were asked for.

        Args:
            tags: The series; one that the run does not have is a row of NaN.
            start: First step wanted.
            end: Last step wanted, included.
            columns: The most columns wanted.
        """
        if columns < 1:
            raise ValueError(f"`heat(columns=...)` must be at least 1, got {columns}.")
        by_table: dict[int, tuple[TableReader, list[int], list[int]]] = {}
        tables = self._all(layout.TABLES)
        wanted = {tag: place for place, tag in enumerate(tags)}
        for table in tables:
            for column, tag in enumerate(table.columns.tags()):
                if (place := wanted.get(tag)) is not None:
                    _, places, own = by_table.setdefault(id(table), (table, [], []))
                    places.append(place)
                    own.append(column)
        line = self._line(None)
        pieces = [(places, table.means(own, line, start, end, columns)) for table, places, own in by_table.values()]
        return heat(len(tags), pieces, columns)

    def clock(self, tag: str) -> tuple[Int64, Float64]:
        """When the steps of a series were: some steps, rising, and their times; those between are interpolated.

        Raises:
            TagNotFound: the run has no such series.
        """
        table, _ = self._find(tag, layout.TABLES)[0]
        return table.clock(self._line(None))

    def latest(self, tags: Iterable[str]) -> dict[str, Point]:
        """The newest measured point of some tags, at the price of these; a tag that has none is left out."""
        by_table: dict[int, tuple[TableReader, list[tuple[str, int]]]] = {}
        tables = self._all(layout.TABLES)
        for tag in tags:
            for table in tables:
                if (column := table.columns.find(tag)) is not None:
                    by_table.setdefault(id(table), (table, []))[1].append((tag, column))
        line = self._line(None)
        found: dict[str, Point] = {}
        for table, wanted in by_table.values():
            points = table.latest([column for _, column in wanted], line)
            for place in np.flatnonzero(~is_missing(points.value)).tolist():
                tag, step = wanted[place][0], int(points.step[place])
                if tag not in found or found[tag].step < step:
                    found[tag] = Point(step, float(points.value[place]), float(points.time[place]))
        return found

    def last(self) -> dict[str, Point]:
        """The newest measured point of every tag."""
        line = self._line(None)
        found: dict[str, Point] = {}
        for table in self._all(layout.TABLES):
            newest = table.newest(line)
            measured = np.flatnonzero(~is_missing(newest.value))
            tags = table.columns.tags()
            rows = zip(
                measured.tolist(),
                newest.step[measured].tolist(),
                newest.value[measured].tolist(),
                newest.time[measured].tolist(),
                strict=True,
            )
            for column, step, value, when in rows:
                tag = tags[column]
                if tag not in found or found[tag].step < step:
                    found[tag] = Point(step, value, when)
        return found

    def table(
        self,
        tags: str | Sequence[str] = "*",
        *,
        start: int | None = None,
        end: int | None = None,
        branch: int | None = None,
    ) -> "pa.Table":
        """Series side by side as an Arrow table: `step`, `time`, a column a tag, null where nothing was measured.

        `.to_pandas()` makes a DataFrame of it. A step has one row; where it was recorded twice, the later value counts.
        Tags called `step` and `time` are the columns `step@` and `time@`.

        Args:
            tags: A pattern (`grad/norm@*`) or the tags themselves.
            start: First step wanted.
            end: Last step wanted, included.
            branch: A branch's number; the current line where left out.

        Raises:
            TagNotFound: a tag that was named is not in the run.
        """
        wanted = self.tags(tags) if isinstance(tags, str) else list(tags)
        by_table: dict[int, tuple[TableReader, list[tuple[int, int]]]] = {}
        for place, tag in enumerate(wanted):
            for table, column in self._find(tag, layout.TABLES):
                by_table.setdefault(id(table), (table, []))[1].append((place, column))
        line = self._line(branch)
        pieces = []
        for table, places in by_table.values():
            rows = table.rows([column for _, column in places], line, start, end)
            pieces.append(([place for place, _ in places], rows))
        return outer_join(wanted, pieces)

    def events(self, kind: str | None = None) -> list[Event]:
        """Everything that happened, in order, or what is of one kind."""
        path = self.path / layout.EVENTS
        found = events.read(self.path, functools.partial(self._problems.__setitem__, str(path)))
        return found if kind is None else [event for event in found if event.kind == kind]

    def follow(self, *, poll_s: float = 0.5, from_start: bool = True) -> Iterator[Frame]:
        """Rows of all tables as they come, until the run ends.

        A step that is lower than the one before says that the run went back and goes on in a new branch.

        Args:
            poll_s: How often to look, in seconds.
            from_start: Whether to begin with what is there already.
        """
        seen: dict[tuple[str, str], dict[int, int]] = {}
        made: dict[tuple[str, str, int], Columns] = {}
        first = True
        while True:
            live = self.state.ending is Ending.LIVE  # asked before reading: what the last poll misses, nobody wrote
            line = self._line(None)
            for folder in (layout.TABLES, layout.HISTOGRAMS):
                for table in self._all(folder):
                    frames = self._new_frames(folder, table, line, seen.setdefault((folder, table.name), {}), made)
                    for frame in frames:
                        if from_start or not first:
                            yield frame
            first = False
            if not live:
                return
            time.sleep(poll_s)

    def frames(self) -> list[Iterator[Frame]]:
        """The rows of each table on the current line, oldest first; histograms are not among them."""
        line = self._line(None)
        return [self._new_frames(layout.TABLES, table, line, {}, {}) for table in self._all(layout.TABLES)]

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}: {self._in_words()})"

    def _repr_html_(self) -> str:
        """For notebooks: how it stands, its configuration, and the curve of its loss."""
        config = self.info.get("config")
        told = config.items() if isinstance(config, Mapping) else ()
        rows = [
            ("run", self._in_words()),
            ("folder", str(self.path)),
            ("model", "" if self.model is None else f"{self.model.num_values:,} values"),
            *((f"config {key}", str(value)) for key, value in list(told)[:_MOST_SHOWN]),
            ("series", f"{len(self.tags()):,}"),
            ("damaged", "; ".join(self.problems[:_MOST_SHOWN])),
        ]
        loss = ""
        with contextlib.suppress(StoreError, TagNotFound, ValueError):
            window = self.window("loss", points=180)
            values = np.where(window.nonfinite > 0, np.nan, window.mean).tolist()
            loss = fragments.curve(values, "the loss")
        return fragments.sheet(self.name, [(one_line(key), one_line(said)) for key, said in rows], below=loss)

    def _in_words(self) -> str:
        from sonde.store.runs import summarise

        summary = summarise(self.path)  # from two small files, whatever the length of the run
        if summary.problem:
            return one_line(summary.problem)
        loss = "" if summary.loss is None else f", loss {summary.loss:.4g}"
        found = ", ".join(f"{number} {severity}" for severity, number in summary.severities.items())
        steps = f"{summary.steps:,} step{'s' * (summary.steps != 1)}"
        return one_line(f"{summary.ending}, {steps}{loss}" + (f", findings: {found}" if found else ""))

    def _new_frames(
        self,
        folder: str,
        table: TableReader,
        line: Sequence[Stretch],
        seen: dict[int, int],
        made: dict[tuple[str, str, int], Columns],
    ) -> Iterator[Frame]:
        for width, rows in table.rows_after(line, seen):
            key = (folder, table.name, width)
            if key not in made:
                try:
                    made[key] = Columns(table.name, table.columns.tags()[:width], bins=table.bins)
                except ValueError as error:  # a damaged list of columns
                    table.note(self.path / folder / table.name / layout.COLUMNS, str(error))
                    continue
            known = len(made[key].tags)  # all of them, unless only half of the run was copied
            for i in range(len(rows.step) if known else 0):
                values = rows.values[:known, i * table.bins : (i + 1) * table.bins].reshape(-1)
                yield Frame(made[key], int(rows.step[i]), float(rows.time[i]), np.ascontiguousarray(values))

    def _line(self, branch: int | None) -> tuple[Stretch, ...]:
        known = self.branches
        number = known[-1].number if branch is None else branch
        if not 0 <= number < len(known):
            raise ValueError(f"`branch` must be 0 to {len(known) - 1} in this run, got {branch}.")
        return branches.line(known, number)

    def _all(self, folder: str) -> list[TableReader]:
        names = self._names(folder)
        for name in names:
            if (folder, name) not in self._tables and self._is_folder(folder, name):
                self._tables[folder, name] = TableReader(self.path / folder / name)
        return [self._tables[folder, name] for name in names if (folder, name) in self._tables]

    def _names(self, folder: str) -> list[str]:
        """What a folder of the run holds."""
        try:
            return opening.names(self.path / folder, depth=layout.IN_RUN)
        except FileNotFoundError:
            return []
        except OSError as error:
            self._problems[str(self.path / folder)] = error.strerror or str(error)
            return []

    def _is_folder(self, folder: str, name: str) -> bool:
        path = self.path / folder / name
        is_folder = opening.is_folder(path, depth=layout.IN_TABLE - 1)
        if not is_folder and path.is_symlink():
            self._problems[str(path)] = "it is a link, which Sonde does not open"
        return is_folder

    def _find(self, tag: str, folder: str) -> list[tuple[TableReader, int]]:
        found = [(table, at) for table in self._all(folder) if (at := table.columns.find(tag)) is not None]
        if not found:
            raise TagNotFound(f"{self.path} has no series {tag!r}; it has {self._hint(tag, folder)}.")
        return found

    def _hint(self, tag: str, folder: str) -> str:
        import difflib

        tags = sorted(_tags_of(self._all(folder)))
        near = difflib.get_close_matches(tag, tags[:10_000], n=3) or tags[:3]
        more = f" and {len(tags) - len(near)} more" if len(tags) > len(near) else ""
        return ", ".join(map(repr, near)) + more if tags else "none yet"


_MOST_SHOWN = 12


def _tags_of(tables: Sequence[TableReader]) -> set[str]:
    return {tag for table in tables for tag in table.columns.tags()}


def _matching(tags: set[str], pattern: str) -> list[str]:
    # "[" and "]" are meant literally: parameter names have none, and a pattern language with three signs is enough.
    return sorted(tags) if pattern == "*" else sorted(fnmatch.filter(tags, pattern.replace("[", "[[]")))
