"""Records a run. The caller copies a row into memory and goes on; a background thread does the rest."""

import contextlib
import dataclasses
import os
import threading
import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from sonde.core.errors import RunNotFound, RunNotWritable, RunUnreadable
from sonde.core.frames import MISSING_BITS, Columns, Detail, Frame
from sonde.core.model_table import ModelTable
from sonde.core.records import Branch, Ending
from sonde.core.settings import check_text
from sonde.core.strict_json import Json
from sonde.store import branches, endings, environment, layout, opening, processes, states
from sonde.store.buffers import DROP_ORDER, RowBlock, Table
from sonde.store.existing import IfExists, folder_for
from sonde.store.finding_counts import FindingCounts
from sonde.store.lines import Appender
from sonde.store.run_folder import Change, RunFolder
from sonde.store.table_files import TableFiles
from sonde.store.table_reader import TableReader
from sonde.streams.logs import logger

_log = logger("sonde.store")

_FLUSH_S = 1.0
_ROOM_BYTES = 64 << 20
_SEGMENT_ROWS = 1000
_FLUSH_TIMEOUT_S = 30.0
_HEARTBEAT_S = 10.0
# How long closing may take, and the folding in it: what is not folded by then (a hundred thousand series take half a
# minute) stays in logs, which read as well. A process that is being ended has little time.
_CLOSE_S, _CLOSE_HURRY_S, _FOLD_S = 60.0, 4.0, 2.0
# At the end tables are folded side by side: nearly all of it is waiting for the disk, which confirms many files
# together in the time of one (43 tables: 0.15 s instead of 1.2 s).
_FOLD_THREADS = 8


def record(
    run: str | os.PathLike[str],
    *,
    name: str | None = None,
    config: Mapping[str, Any] | None = None,
    if_exists: IfExists = "continue",
) -> "Writer":
    """Start or continue recording a run.

    Args:
        run: Its folder; made where it does not exist.
        name: What lists call it; the folder's name where left out.
        config: Anything JSON can say about the run: hyper-parameters, arguments. Objects it cannot say are kept as
            their `str`, and secrets are hidden.
        if_exists: What becomes of a run that is there already: `"continue"`: rows that go on where it ended join its
            line, rows that go back to an earlier step start a new branch, which is said. `"new"`: it is left alone, and
            this one is recorded into `<run>-2`, or the next number that is free. `"error"`: `RunNotWritable` is raised.

    Raises:
        RunNotWritable: the folder cannot be made or written, or holds something that is not a run.
        RunBusy: another process is recording into it.
        RunUnreadable: an existing run there is damaged or from a newer Sonde.
        SettingError: the folder or the name holds control characters.

    Example:
        >>> import tempfile
        >>> with record(tempfile.mkdtemp() + "/first") as run:
        ...     for step in range(3):
        ...         run.log({"loss": 1 / (step + 1)}, step=step)
    """
    for key, said in (("run", os.fspath(run)), ("name", name)):
        if said is not None:
            check_text(key, said)  # it is printed and logged
    return Writer(folder_for(run, if_exists), name=name, config=config)


class Writer:
    """A run that is being recorded (`record` makes one).

    `append` and `log` copy a row into preallocated memory and return. The background thread writes what came every
    second, folds logs into Parquet segments, and keeps `state.json` fresh. A disk that is full or gone costs one
    warning: rows wait in memory and are written when it is back; when the memory set aside for that is taken,
    distributions are dropped first, then layers, and the loss, learning rate and global norms never. What was dropped
    is counted in the run's state. A folder that is renamed is followed; where it is removed or replaced, recording goes
    on in `<path>-2` (or the next number that is free), and what is lost is said. The process may end in any way: what
    was flushed is readable, and the state says how it ended.

    Args:
        path: The run's folder.
        name: See `record`.
        config: See `record`.
        settings: Of Sonde itself, for `run.json`; without secrets.
        origin: Where and when the training was, if not here and now.
        flush_s: How often what came is written, in seconds: what a killed process loses at most.
        room_bytes: Memory for rows that wait for the disk.
        segment_rows: From how many rows on a log is folded into a segment.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        config: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        origin: environment.Origin | None = None,
        flush_s: float = _FLUSH_S,
        room_bytes: int = _ROOM_BYTES,
        segment_rows: int = _SEGMENT_ROWS,
    ) -> None:
        for argument, value in (("flush_s", flush_s), ("room_bytes", room_bytes), ("segment_rows", segment_rows)):
            if value <= 0:
                raise ValueError(f"`Writer({argument}=...)` must be positive, got {value}.")
        self._given = Path(path)
        self._flush_s, self._room_bytes, self._segment_rows = flush_s, room_bytes, segment_rows
        self._lock = threading.Lock()
        self._turn = threading.Condition(threading.Lock())
        self._wake = threading.Event()
        self._tables: dict[str, Table] = {}
        self._columns: dict[tuple[str, tuple[str, ...]], Columns] = {}
        self._next_steps: dict[str, int] = {}
        """Of `log` without a step, by table."""
        self._events: list[bytes] = []
        self._forks: list[Branch] = []
        self._resumed_step: int | None = None
        self._disputed: list[Frame] = []
        self._queued_bytes = 0
        self._asked, self._served, self._sync_asked = 0, 0, False
        self._closing: tuple[Ending, str] | None = None
        self._closed = False
        self._warned_closed = False
        self._fault = ""
        self._steps = self._steps_branch = 0
        self._findings = FindingCounts()
        self._loss: float | None = None
        self._state_written = 0.0
        self._model: Json = None
        self._files: dict[str, TableFiles] = {}
        try:
            self._open(name, config, settings, origin)
        except OSError as error:
            raise RunNotWritable(
                f"{self._given} cannot be written: {error.strerror or error}; choose another folder."
            ) from error
        self._folding: Generator[None] | None = None
        self._thread = threading.Thread(target=self._work, name=f"sonde-{self.path.name}", daemon=True)
        self._thread.start()
        endings.watch(self)

    @property
    def path(self) -> Path:
        """The run's folder, where it is now; as it was given, as long as nobody has moved it."""
        return self._folder.path

    @property
    def location(self) -> Path:
        """The same from the root on, whatever the working directory is."""
        return self._folder.location

    # Opening.

    def _open(
        self,
        name: str | None,
        config: Mapping[str, Any] | None,
        settings: Mapping[str, Any] | None,
        origin: environment.Origin | None,
    ) -> None:
        given = self._given
        try:
            info = layout.read_info(given)
        except RunNotFound:
            inside = set(os.listdir(given)) if given.is_dir() else set()
            if inside - {layout.RANKS} and layout.LOCK not in inside:
                raise RunNotWritable(f"{given} is not empty and not a run; choose a folder of its own.") from None
            given.mkdir(parents=True, exist_ok=True)
            info = {
                "schema": layout.SCHEMA,
                "name": name or given.resolve().name,
                "created": time.time() if origin is None else origin.created,
                "sessions": [],
            }
        self._folder = RunFolder(given)
        root = self._folder.root
        try:
            for file in (layout.EVENTS, layout.BRANCHES):
                opening.check(self.path / file, depth=layout.IN_RUN)
            session = {"started": time.time(), "process": os.getpid()}
            session |= environment.describe() if origin is None else {}
            earlier = info.get("sessions")
            info["sessions"] = [*(earlier if isinstance(earlier, list) else ()), session]
            info["environment"] = session if origin is None else dict(origin.environment)
            if config is not None or "config" not in info:
                info["config"] = dict(config or {})
            if settings is not None:
                info["settings"] = dict(settings)
            self._info, self._has_info = info, True
            self._model = info.get("model")
            if not earlier:  # first: as soon as there is a run, it says who records it
                self._write_state(Ending.LIVE, "")
            layout.replace_json(root / layout.RUN, info)
            self._event_file = Appender(root / layout.EVENTS)
            self._branch_file = Appender(root / layout.BRANCHES)
            self._branches = branches.read(self.path)
            self._continue()
            self._write_state(Ending.LIVE, "")
        except BaseException:
            self._folder.close()
            raise

    def _continue(self) -> None:
        """Take up what an earlier session left."""
        said = states.read(self.path)
        self._loss = said.get("loss")
        self._findings.read(self.path, said.get("findings", 0))
        self._steps_branch = self._branches[-1].number
        line = branches.line(self._branches, self._branches[-1].number)
        for kind in (layout.TABLES, layout.HISTOGRAMS):
            folder = self.path / kind
            for name in opening.names(folder, depth=layout.IN_RUN) if os.path.lexists(folder) else ():
                columns = folder / name / layout.COLUMNS
                if not (folder / name).is_dir():
                    continue
                opening.check(columns, depth=layout.IN_TABLE)
                if not columns.is_file():
                    continue  # no table, or nothing that could be told apart
                reader = TableReader(folder / name)
                tags = reader.columns.tags()
                # The detail is not recorded: it matters only while a disk is slow, and the next frame says it again.
                try:
                    table = Table(Columns(name, tags, bins=reader.bins), tags)
                except ValueError as error:
                    raise RunUnreadable(f"{folder / name / layout.COLUMNS} is damaged: {error}") from error
                if reader.num_columns(line) > len(tags):  # new tags would be given the columns of lost ones
                    raise RunUnreadable(
                        f"{folder / name / layout.COLUMNS} lacks columns that were recorded; copy the run again, or "
                        "record into another folder."
                    )
                last = reader.last_step(line)
                if last is not None:
                    table.floor_step = self._next_steps[name] = last + 1
                    self._resumed_step = last if self._resumed_step is None else max(self._resumed_step, last)
                self._tables[name] = table
                written = self._folder.root / kind / name
                self._files[name] = TableFiles(written, reader.bins, table.tags, self._segment_rows)
        self._steps = self._resumed_step or 0

    # What the training thread calls.

    def describe(self, model: ModelTable) -> None:
        """Say what the model is made of: it is in `run.json` after the next flush. The latest is kept."""
        self._model = environment.redactor().plain(model.to_json())
        self._has_info = False

    @property
    def model(self) -> Json:
        """The model table as `run.json` has it; another object after each `describe`, None where nobody told."""
        return self._model

    def log(
        self,
        values: Mapping[str, float],
        step: int | None = None,
        *,
        table: str = "step",
        time: float | None = None,
    ) -> None:
        """Record some numbers of a step.

        Args:
            values: Numbers by tag, for example `{"loss": 0.7, "lr": 1e-3}`; NaN and infinities are kept.
            step: A whole number; a lower one than before starts a new branch. Where left out, the one after the last
                that was logged to the table, 1 at first: each such call is a step of its own.
            table: Where they go; tags that come together belong together.
            time: UTC, seconds since 1970; now where left out.

        Raises:
            FormatError: a tag does not follow the grammar of `sonde.core.tags`.
            TypeError: the values are not numbers by tag.
        """
        if not isinstance(values, Mapping):
            raise TypeError(
                f"`log(values, step=...)` takes numbers by tag first, got the {type(values).__name__} {values!r}: "
                'for example `log({"loss": 0.7}, step=3)`.'
            )
        if step is None:
            fork = self._branches[-1]
            step = self._next_steps.get(table, 1 if fork.parent is None else fork.fork_step)
        tags = tuple(values)
        columns = self._columns.get((table, tags))
        if columns is None:
            columns = self._columns[table, tags] = Columns(table, tags)
        with np.errstate(over="ignore"):  # what float32 cannot hold is infinite, and no warning in the training
            row = np.fromiter(values.values(), np.float32, len(tags))
        self.append(Frame(columns, step, _now() if time is None else time, row))
        self._next_steps[table] = step + 1  # last: the row may begin a branch

    def append(self, frame: Frame) -> None:
        """Record a frame. Returns as soon as the row is copied.

        Raises:
            ValueError: the frame does not fit its table, or has the wrong number of values.
        """
        if len(frame.values) != frame.columns.width:
            raise ValueError(f"the frame has {len(frame.values)} values for {frame.columns.width} columns.")
        if not frame.columns.width:
            return  # it says nothing
        with self._lock:
            if self._closed:
                self._say_closed()
                return
            table = self._tables.get(frame.columns.table)
            if table is None:
                table = self._tables[frame.columns.table] = Table(frame.columns)
            if self._resumed_step is not None:
                self._decide(table, frame)
            elif self._goes_back(table, frame.step):
                self._fork(frame.step)
            self._push(table, frame)

    def event(self, kind: str, *, step: int | None = None, data: Mapping[str, Any] | None = None) -> None:
        """Record something that happened.

        Args:
            kind: What it is, for example `note` or `finding`.
            step: When it happened.
            data: Anything JSON can say about it.
        """
        line = layout.event_line(kind, _now(), step, data or {})
        with self._lock:
            if self._closed:
                self._say_closed()
                return
            self._events.append(line)
            if kind == "finding":
                self._findings.add(data or {})

    def branch(self, step: int) -> None:
        """Go back to an earlier step, as after loading an older checkpoint: the next rows begin at `step`.

        Nothing happens where no row of that step or a later one was recorded.
        """
        with self._lock:
            if self._resumed_step is not None:
                newest = self._resumed_step
            else:  # behind a fork, what its parent has before it may still be gone back from
                fork = self._branches[-1]
                floors = [table.floor_step for table in self._tables.values() if table.floor_step is not None]
                newest = max(floors, default=step - 1 if fork.parent is None else fork.fork_step - 1)
            if step <= newest:
                self._resumed_step, self._disputed = None, []
                self._fork(step)

    def flush(self, *, sync: bool = False, timeout_s: float = _FLUSH_TIMEOUT_S) -> bool:
        """Wait until everything recorded so far can be read.

        Args:
            sync: Whether to have the disk confirm it as well (`fsync`).
            timeout_s: The longest to wait.

        Returns:
            Whether it can; False where the disk refused or took too long. Nothing is lost by that: it will be tried
            again.
        """
        with self._turn:
            if self._closing is None and self._thread.is_alive():
                self._asked += 1
                self._sync_asked |= sync
                ticket = self._asked
                self._wake.set()
                self._turn.wait_for(lambda: self._served >= ticket, timeout_s)
                return self._served >= ticket and not self._fault
        self._thread.join(timeout_s)  # it is being closed, which flushes
        return not self._thread.is_alive() and not self._fault and not self._queued_bytes

    def close(self) -> None:
        """Flush, fold and let go; the run is `finished`. A second call does nothing."""
        self.end(Ending.FINISHED, "")

    def end(self, ending: Ending, reason: str) -> None:
        """Close the run and say how it ended."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._closing = (ending, reason)
        self._wake.set()
        self._thread.join(_CLOSE_S if ending is Ending.FINISHED else _CLOSE_HURRY_S)
        endings.unwatch(self)

    def forget(self) -> None:
        """Let go of files that belong to the parent process (after a fork): nothing is recorded or closed here."""
        self._closed = self._warned_closed = True
        self._lock = threading.Lock()  # the parent's threads may have held them at the fork
        self._turn = threading.Condition(threading.Lock())
        self._folder.close()
        for files in self._files.values():
            files.abandon()

    def __enter__(self) -> "Writer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.end(*endings.describe(kind, value))

    def _push(self, table: Table, frame: Frame) -> None:
        share = DROP_ORDER[frame.columns.detail]
        taken = table.push(frame, self._branches[-1].number, share * self._room_bytes - self._queued_bytes)
        if taken > 0:
            self._queued_bytes += taken
            if table.has_full_block:
                self._wake.set()

    def _decide(self, table: Table, frame: Frame) -> None:
        """Whether a resumed run goes on or goes back, as its first rows tell.

        A row of the very last step is no proof where its table had none of that step (an evaluation that came late):
        it stays, and is copied to the new branch if another table's row then says that the run went back.
        """
        assert self._resumed_step is not None
        if frame.step == self._resumed_step and (table.floor_step is None or frame.step >= table.floor_step):
            self._disputed.append(dataclasses.replace(frame, values=frame.values.copy()))
            return
        went_back = frame.step <= self._resumed_step or self._goes_back(table, frame.step)
        resumed_step, disputed, self._disputed, self._resumed_step = self._resumed_step, self._disputed, [], None
        if went_back:
            self._say_branch(before=resumed_step, now=frame.step)
            self._fork(frame.step)
            for earlier in disputed:
                self._push(self._tables[earlier.columns.table], earlier)

    def _say_branch(self, *, before: int, now: int) -> None:
        number, earlier = len(self._branches), self._branches[-1].number
        _log.warning(
            "%s was recorded before, up to step %s, and goes on at step %s: continuing as branch %d. Earlier points "
            'stay: read them with `branch=%d`, or give each recording a folder of its own (`if_exists="new"`).',
            self.path,
            f"{before:,}",
            f"{now:,}",
            number,
            earlier,
        )

    def _goes_back(self, table: Table, step: int) -> bool:
        # What is before a branch's first step is its parent's: a row there, of any table, would fall behind the
        # parent's.
        branch = self._branches[-1]
        before_branch = branch.parent is not None and step < branch.fork_step
        return before_branch or (table.floor_step is not None and step < table.floor_step)

    def _fork(self, step: int) -> None:
        branch = Branch(number=len(self._branches), parent=self._branches[-1].number, fork_step=step)
        self._branches.append(branch)
        self._forks.append(branch)
        for table in self._tables.values():
            table.floor_step = None
        self._next_steps.clear()

    def _say_closed(self) -> None:
        if not self._warned_closed:
            self._warned_closed = True
            _log.warning("%s is closed; what is recorded from here on is lost.", self.path)

    # What the background thread does.

    def _work(self) -> None:
        next_flush = time.monotonic() + self._flush_s
        while self._closing is None:
            if self._folding is None:
                self._wake.wait(max(0.0, next_flush - time.monotonic()))
            if self._folding is None or self._wake.is_set() or time.monotonic() >= next_flush:
                self._cycle()
                next_flush = time.monotonic() + self._flush_s
            self._folding = self._folding or self._fold()
            if next(self._folding, self) is self:
                self._folding = None
        self._finish()

    def _cycle(self) -> None:
        """One flush: whatever goes wrong here is said once and tried again."""
        self._wake.clear()
        with self._turn:
            ticket, sync = self._asked, self._sync_asked
            self._sync_asked = False
        try:
            self._follow()
            try:
                self._flush(sync)
            except OSError:  # perhaps since the folder has just gone
                if not self._follow():
                    raise
                self._flush(sync)
            if self._fault:
                _log.warning("%s can be written again; nothing that was flushed is lost.", self.path)
            self._fault = ""
        except Exception as error:
            if not self._fault:
                what = (error.strerror or str(error)) if isinstance(error, OSError) else repr(error)
                _log.warning("%s cannot be written: %s. Rows wait in memory, and Sonde keeps trying.", self.path, what)
            self._fault = str(error) or repr(error)
        with self._turn:
            self._served = ticket
            self._turn.notify_all()

    def _follow(self) -> bool:
        """Look whether the run's folder is still where it was; whether it is not."""
        old = self.path
        change = self._folder.look()
        if change is Change.NONE:
            return False
        data: dict[str, Any] = {"what": change, "from": str(old)}
        if change is Change.RENAMED:
            _log.warning("%s was renamed to %s; recording goes on there.", old, self.path)
        else:
            self._begin_again(change)
            data["lost_steps"] = self._steps
            lost = f"what it had, up to step {self._steps:,}, is lost"
            _log.warning("%s was %s while it was recorded: %s. Recording goes on in %s.", old, change, lost, self.path)
        with self._lock:
            self._events.append(layout.event_line("run-folder", _now(), self._steps, {**data, "to": str(self.path)}))
        return True

    def _begin_again(self, change: Change) -> None:
        """Go on in another folder, with all that is still in memory."""
        if self._folding is not None:
            self._folding.close()
            self._folding = None
        name = self._folder.path.name
        self._folder.begin_again()
        root = self._folder.root
        if self._info["name"] == name:
            self._info["name"] = self.path.name
        self._info["sessions"] = self._info["sessions"][-1:]
        self._info.update(self._folder.note(change, self._steps))
        self._has_info = False
        self._event_file.move(root / layout.EVENTS)
        self._branch_file.move(root / layout.BRANCHES)
        with self._lock:
            self._forks = self._branches[1:]
            kinds = {table.name: table.bins for table in self._tables.values()}
        self._files = {
            name: files.begin_again(layout.table_folder(root, name, bins=kinds[name]))
            for name, files in self._files.items()
        }
        self._state_written, self._fault = 0.0, ""

    def _flush(self, sync: bool) -> None:
        if not self._has_info:
            self._has_info = True  # first: a model that is described meanwhile is written the next time
            try:
                self._write_info()
            except OSError:
                self._has_info = False
                raise
        with self._lock:
            tables = list(self._tables.items())
            forks, self._forks = self._forks, []
            events, self._events = self._events, []
        self._event_file.queue(b"".join(events))
        self._branch_file.queue(b"".join(map(branches.encode, forks)))
        self._branch_file.drain()  # first: rows of a branch that nobody knows of would be lost
        problem: OSError | None = None
        wrote = bool(events) or _now() - self._state_written > _HEARTBEAT_S
        for name, table in tables:
            with self._lock:
                tags, blocks = table.take()
            if name not in self._files:
                folder = layout.table_folder(self._folder.root, name, bins=table.bins)
                self._files[name] = TableFiles(folder, table.bins, (), self._segment_rows)
            files = self._files[name]
            files.queue(tags, blocks)
            try:
                for block in files.drain():
                    wrote = True
                    self._note(table, block)
                    with self._lock:
                        self._queued_bytes -= table.give_back(block)
                if sync:
                    files.sync()
            except OSError as error:
                problem = problem or error  # the other tables may still be written
        self._event_file.drain()
        if sync:
            self._event_file.sync()
        if problem:
            raise problem
        if wrote:
            self._write_state(Ending.LIVE, "")

    def _write_info(self) -> None:
        if self._model is not None:
            self._info["model"] = self._model
        layout.replace_json(self._folder.root / layout.RUN, self._info)

    def _note(self, table: Table, block: RowBlock) -> None:
        """Remember what lists show."""
        if table.detail is Detail.ESSENTIAL and table.bins == 1:
            column = table.loss_column
            if column is not None and column >= block.width:
                column = None  # a block from before the loss was a column
            step, loss = block.newest(column if column is not None else 0)
            self._steps = max(self._steps, step) if block.branch == self._steps_branch else step
            self._steps_branch = block.branch
            if column is not None and np.float32(loss).view(np.uint32) != MISSING_BITS:
                self._loss = loss

    def _fold(self) -> Generator[None]:
        for files in sorted(self._files.values(), key=lambda files: files.width):  # at the end there may be little time
            if files.has_folding:
                yield from files.fold()

    def _finish(self) -> None:
        assert self._closing is not None
        try:
            self._settle(*self._closing)
        except Exception as error:
            _log.warning("%s could not be closed properly: %s.", self.path, error)
        finally:
            self._folder.close()

    def _settle(self, ending: Ending, reason: str) -> None:
        until = time.monotonic() + _FOLD_S
        self._cycle()
        if self._folding is not None:
            _spend(self._folding, until)
        self._end_tables(until)
        self._event_file.sync()
        if self._queued_bytes and self._fault:
            _log.warning(
                "%s: rows that were never flushed are lost, the disk refused to the end: %s.",
                self.path,
                self._fault,
            )
        self._event_file.close()
        self._branch_file.close()
        self._write_state(ending, reason)

    def _end_tables(self, until: float) -> None:
        """Fold what can be folded by then, and have the disk keep the logs of the rest."""
        left = deque(sorted(self._files.values(), key=lambda files: files.width))  # there may be little time

        def work() -> None:
            with contextlib.suppress(IndexError):  # none is left
                while True:
                    files = left.popleft()
                    try:
                        files.close_log()
                        _spend(files.fold(), until)
                        files.sync()
                    except OSError as error:
                        self._fault = str(error)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(min(_FOLD_THREADS, len(left)) - 1)]
        started = []
        with contextlib.suppress(RuntimeError):  # a process that is being ended may start none
            for thread in threads:
                thread.start()
                started.append(thread)
        work()
        for thread in started:
            thread.join()

    def _write_state(self, ending: Ending, reason: str) -> None:
        with self._lock:  # the training may be adding a table
            dropped = {name: table.dropped for name, table in self._tables.items() if table.dropped}
            severities = self._findings.by_severity()
        state = {
            "schema": layout.SCHEMA,
            "ending": ending,
            "reason": reason,
            "steps": self._steps,
            "loss": self._loss,
            "findings": self._findings.total,
            "severities": severities,
            "updated": _now(),
            **processes.here(),
            "dropped": dropped,
        }
        layout.replace_json(self._folder.root / layout.STATE, state)
        self._state_written = _now()


def _now() -> float:
    return time.time()


def _spend(work: Iterator[None], until: float) -> None:
    """Go on with some work until it is done or the time is up."""
    for _ in work:
        if time.monotonic() > until:
            return
