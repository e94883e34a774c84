"""Makes a run out of other people's logs."""

import math
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sonde.core.errors import FormatError, RunNotWritable
from sonde.core.frames import MISSING, Columns, Frame
from sonde.store.environment import Origin
from sonde.store.importing import csv_files, mlflow, tensorboard, wandb
from sonde.store.importing.foreign import Log, Logged
from sonde.store.importing.gathering import Extent, Gathered
from sonde.store.importing.names import assign
from sonde.store.writer import Writer

READERS: Mapping[str, Callable[[str, str | None], Log]] = {
    "tensorboard": tensorboard.read,
    "csv": csv_files.read,
    "wandb": wandb.read,
    "mlflow": mlflow.read,
}

_NAME_CHARS = 60  # four bytes each still make a file name
_FLUSH_BYTES = 16 << 20  # rows wait in memory until they are written


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A run that was made out of a log.

    Attributes:
        path: Its folder.
        steps: How many steps have numbers.
        tags: Our tag of every name of the log.
        known: The names whose meaning is known; the others are kept, and no rule looks at them.
        notes: How the log was read, where that could be doubted.
    """

    path: Path
    steps: int
    tags: Mapping[str, str]
    known: frozenset[str]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.path}: {self.steps:,} steps, {len(self.tags):,} series"]
        lines += [f"  {name} → {tag}" for name, tag in self.tags.items() if name in self.known]
        others = [tag for name, tag in self.tags.items() if name not in self.known]
        if others:
            more = f" and {len(others) - 12:,} more" if len(others) > 12 else ""
            lines.append(f"  kept, meaning unknown: {', '.join(others[:12])}{more}")
        return "\n".join(lines + [f"  {note}" for note in self.notes])


def import_logs(
    kind: str,
    source: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    run: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> Imported:
    r"""Make a run of a log that another program wrote, so that it can be diagnosed, compared and reported.

    Names are translated by the table of `sonde.store.importing.names`; values, steps and times are kept as they are,
    NaN and infinities included. Where validation was logged by the number of its epoch while the loss was logged by
    step, it is put at the step of its time. The environment is what the log says: of this machine nothing is noted.

    Args:
        kind: `tensorboard`, `csv`, `wandb` or `mlflow`.
        source: The folder, file or address.
        out: Folder of the new run; `runs/<name of the log>` where left out. It must not be there yet.
        run: Which of several runs in the source.
        tags: Our tags by the log's names, before the table: `{"my_loss": "loss"}`.

    Raises:
        RunNotFound: there is no such log, or there are several runs in it and none was chosen.
        FormatError: the log is damaged, holds no numbers, or a tag is wrong.
        RunNotWritable: the folder of the new run is taken or cannot be written.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "log.csv"
        ...     _ = path.write_text("epoch,train_loss,val_loss,mood\n0,3.5,3.6,1\n1,2.1,2.8,2\n")
        ...     imported = import_logs("csv", path, Path(folder) / "run")
        ...     print(imported.tags)
        {'epoch': 'epoch', 'train_loss': 'loss', 'val_loss': 'val/loss', 'mood': 'mood'}
    """
    if kind not in READERS:
        raise ValueError(f"`import_logs(kind=...)` must be one of {', '.join(READERS)}, got {kind!r}.")
    try:
        log = READERS[kind](os.fspath(source), run)
    except OSError as error:
        raise _unreadable(error) from error
    path = Path(out) if out is not None else Path("runs") / (_folder_name(log.name) or kind)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise RunNotWritable(f"{path} is there already; name another folder (`out`).")
    with Gathered() as gathered:
        try:
            gathered.take(log.entries)
        except OSError as error:
            raise _unreadable(error) from error
        except sqlite3.Error as error:
            raise RunNotWritable(f"the log cannot be sorted in a temporary file: {error}; set TMPDIR.") from error
        extents = gathered.extents()
        if not extents:
            raise FormatError(f"{source} holds no numbers.")
        names = assign({name: extent.num for name, extent in extents.items()}, tags)
        by_tag = {tag: name for name, tag in names.tags.items()}
        notes = [*log.notes, *_align(gathered, by_tag, extents), *_thin_epochs(gathered, by_tag, extents)]
        if gathered.num_repeated:
            notes.append(f"the training was started again: {gathered.num_repeated:,} numbers before that are left out")
        if gathered.num_left_out:
            notes.append(f"{gathered.num_left_out:,} numbers of steps below zero, or beyond 64 bits, were left out")
        if "loss" not in by_tag:
            named = "--map THEIRS=loss, in Python tags={THEIRS: 'loss'}"
            notes.append(f"no series is known to be the training loss; name it: {named}")
        first = gathered.first_time()
        origin = Origin(log.time if first is None else first, log.environment)
        with Writer(path, name=log.name, config=log.config, origin=origin) as writer:
            renamed = {name: tag for name, tag in names.tags.items() if name != tag}
            writer.event("imported", data={"from": kind, "source": os.fspath(source), "names": renamed})
            steps = _write(writer, gathered, names.tags, log.time)
    return Imported(path=path, steps=steps, tags=names.tags, known=names.known, notes=tuple(notes))


def import_tensorboard(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    run: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> Imported:
    """Make a run of TensorBoard's event files; see `import_logs`. TensorBoard need not be installed.

    Args:
        source: The folder that holds them.
        out: Folder of the new run; `runs/<name of the log>` where left out. It must not be there yet.
        run: Which of several runs in the source.
        tags: Our tags by the log's names, before the table: `{"my_loss": "loss"}`.

    Raises:
        RunNotFound, FormatError, RunNotWritable: as `import_logs`.
    """
    return import_logs("tensorboard", source, out, run=run, tags=tags)


def import_wandb(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    run: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> Imported:
    """Make a run of a folder that W&B keeps on this disk; see `import_logs`. W&B need not be installed.

    Args:
        source: The folder of the run (`wandb/run-…`), or one that holds several.
        out: Folder of the new run; `runs/<name of the log>` where left out. It must not be there yet.
        run: Which of several runs in the source.
        tags: Our tags by the log's names, before the table: `{"my_loss": "loss"}`.

    Raises:
        RunNotFound, FormatError, RunNotWritable: as `import_logs`.
    """
    return import_logs("wandb", source, out, run=run, tags=tags)


def import_mlflow(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    run: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> Imported:
    """Make a run of one that MLflow tracks; see `import_logs`. MLflow need not be installed.

    Args:
        source: A folder, a database file, or MLflow's URI.
        out: Folder of the new run; `runs/<name of the log>` where left out. It must not be there yet.
        run: Which of several runs in the source, by name or ID.
        tags: Our tags by the log's names, before the table: `{"my_loss": "loss"}`.

    Raises:
        RunNotFound, FormatError, RunNotWritable: as `import_logs`.
    """
    return import_logs("mlflow", source, out, run=run, tags=tags)


def import_csv(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    tags: Mapping[str, str] | None = None,
) -> Imported:
    """Make a run of a CSV file with a row a step; see `import_logs`.

    Args:
        source: The file.
        out: Folder of the new run; `runs/<name of the file>` where left out. It must not be there yet.
        tags: Our tags by the file's columns, before the table: `{"my_loss": "loss"}`.

    Raises:
        RunNotFound, FormatError, RunNotWritable: as `import_logs`.
    """
    return import_logs("csv", source, out, tags=tags)


def _unreadable(error: OSError) -> FormatError:
    return FormatError(f"{error.filename} cannot be read: {error.strerror or error}.")


def _folder_name(name: str) -> str:
    r"""The name of a log as one of a folder.

    Example:
        >>> _folder_name("a/b: 1"), _folder_name(".."), _folder_name("x\0\n")
        ('a-b: 1', '', 'x')
    """
    return re.sub(r"[\x00-\x1f\x7f]", "", name.replace("/", "-")).strip(". ")[:_NAME_CHARS]


def _align(gathered: Gathered, by_tag: Mapping[str, str], extents: Mapping[str, Extent]) -> Iterator[str]:
    """Put validation that was logged by epoch at the steps of its times."""
    loss = by_tag.get("loss")
    if loss is None:
        return
    for tag in sorted(by_tag):
        extent = extents[by_tag[tag]]
        counts_up = extent.last_step - extent.first_step + 1 == extent.num
        if not tag.startswith("val/") or not counts_up or not extent.last_step * 4 < extents[loss].last_step:
            continue
        points = list(gathered.series(by_tag[tag]))
        moved = _by_time(points, gathered.series(loss))
        # Logged long after the loss of the same number: it counts something else than steps.
        if len(moved) == len(points) and moved[-1].step > 4 * (points[-1].step + 1):
            gathered.move(by_tag[tag], moved)
            yield (
                f"{by_tag[tag]} was logged by epoch ({extent.first_step} to {extent.last_step}) and is put at the "
                f"steps of its times ({moved[0].step} to {moved[-1].step})"
            )


def _by_time(points: list[Logged], clock: Iterator[Logged]) -> list[Logged]:
    """The points at the last step of the clock before each of them, as far as that can be said."""
    moved: list[Logged] = []
    last: int | None = None
    ahead = next(clock, None)
    for point in points:
        while ahead is not None and ahead.time is not None and point.time is not None and ahead.time <= point.time:
            last, ahead = ahead.step, next(clock, None)
        if point.time is None or last is None or (moved and last <= moved[-1].step):
            return []
        moved.append(point._replace(step=last))
    return moved


def _thin_epochs(gathered: Gathered, by_tag: Mapping[str, str], extents: Mapping[str, Extent]) -> Iterator[str]:
    """Keep `epoch` only where one ends, which is what it says in a run: frameworks log it with every number."""
    name = by_tag.get("epoch")
    if name is None:
        return
    ends: list[Logged] = []
    latest, is_thin = -math.inf, True
    for point in gathered.series(name):
        whole = math.floor(point.value) if math.isfinite(point.value) else latest
        is_thin &= whole == point.value and whole > latest
        if -math.inf < latest < whole:
            ends.append(point._replace(value=float(whole)))
        latest = max(latest, whole)
    if not is_thin:
        gathered.move(name, ends)
        yield f"{name} is kept where it rises: {len(ends):,} of {extents[name].num:,} times"


def _write(writer: Writer, gathered: Gathered, tags: Mapping[str, str], time: float) -> int:
    tables = _tables(gathered.extents(), tags)
    places = {tag: (columns, at) for columns in tables for at, tag in enumerate(columns.tags)}
    num_steps = waiting_bytes = 0
    for step, points in gathered.steps():
        num_steps += 1
        rows: dict[str, Frame] = {}
        for point in points:
            columns, at = places[tags[point.name]]
            if columns.table not in rows:
                when = time if point.time is None else point.time
                values = np.full(columns.width, MISSING, np.float32)
                rows[columns.table] = Frame(columns, step, when, values)
            with np.errstate(over="ignore"):
                rows[columns.table].values[at] = point.value
        for frame in rows.values():
            writer.append(frame)
            waiting_bytes += frame.values.nbytes
        if waiting_bytes > _FLUSH_BYTES:
            waiting_bytes = 0
            if not writer.flush():
                raise RunNotWritable(f"{writer.path} refuses to be written; is the disk full?")
    return num_steps


def _tables(extents: Mapping[str, Extent], tags: Mapping[str, str]) -> list[Columns]:
    """Tags that come about equally often share a table, so that rows are not mostly empty."""
    groups: dict[tuple[int, bool], list[str]] = {}
    for name, extent in extents.items():
        groups.setdefault((extent.num.bit_length(), "@" in tags[name]), []).append(tags[name])
    main = next((key for key, group in groups.items() if "loss" in group), max(groups))
    return [
        Columns(
            "step" if key == main else f"{'layers' if key[1] else 'series'}-{key[0]}",
            tuple(group),
        )
        for key, group in groups.items()
    ]
