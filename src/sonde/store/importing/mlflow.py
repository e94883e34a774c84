"""MLflow's records as a log, read without its package: a database of SQLite, or a folder `mlruns`."""

import math
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from sonde.core.errors import FormatError, RunNotFound
from sonde.store import opening
from sonde.store.importing.foreign import Log, Logged, number, step

_CELL_BYTES = 1 << 20
_LINE_BYTES, _MOST_BYTES = 1 << 12, 1 << 40  # a file is read line by line
_PROGRAM, _COMMIT = "mlflow.source.name", "mlflow.source.git.commit"
_LARGEST = 1.7976931348623157e308  # MLflow keeps infinities as the largest double


def read(source: str, run: str | None = None) -> Log:
    """The metrics and parameters of a run.

    Args:
        source: `sqlite:///mlflow.db`, the file itself, a folder `mlruns` (or `file:…`), or the folder of one run.
        run: Which of several: its ID or its name.

    Raises:
        RunNotFound: there is no store, no run in it, or several and none was chosen.
        FormatError: it is on a server, or not of MLflow.
    """
    address = urlsplit(source)
    if address.scheme in ("http", "https", "databricks") or "+" in address.scheme:
        raise FormatError(
            f"{source} is on a server; Sonde reads MLflow's files. Copy its database or folder here, or export the run "
            "as CSV and use: sonde import csv FILE"
        )
    path = Path(_local(source))
    if path.is_file():
        return _of_database(path, run)
    if path.is_dir():
        database = path / "mlflow.db"
        return _of_database(database, run) if opening.is_file(database, depth=1) else _of_folder(path, run)
    raise RunNotFound(f"{path} does not exist; name MLflow's database (mlflow.db) or its folder (mlruns).")


def _local(source: str) -> str:
    if source.startswith("sqlite:///"):  # a fourth slash makes it absolute
        return unquote(source.removeprefix("sqlite:///").partition("?")[0])
    if source.startswith("file:"):
        return unquote(urlsplit(source).path)
    return source


def _chosen(runs: dict[str, str], run: str | None, place: Path) -> str:
    """The ID of the run that is meant, out of names by ID."""
    if run is not None:
        found = [key for key, name in runs.items() if run in (key, name)]
        if not found:
            raise RunNotFound(f"{place} has no run {run!r}; it has {_listed(runs)}.")
        if len(found) > 1:
            raise RunNotFound(f"{place} has {len(found)} runs called {run!r}; choose by ID: {', '.join(found[:8])}")
        return found[0]
    if not runs:
        raise RunNotFound(f"{place} holds no run of MLflow.")
    if len(runs) > 1:
        raise RunNotFound(f"{place} holds {len(runs)} runs; choose one with --run: {_listed(runs)}")
    return next(iter(runs))


def _listed(runs: dict[str, str]) -> str:
    few = ", ".join(f"{name} ({key})" if name else key for key, name in list(runs.items())[:8])
    return few + (f" and {len(runs) - 8} more" if len(runs) > 8 else "")


def _of_database(path: Path, run: str | None) -> Log:
    try:
        with closing(_open(path)) as base:
            rows = base.execute("SELECT run_uuid, name FROM runs WHERE coalesce(lifecycle_stage, '') != 'deleted'")
            names = {key: name if isinstance(name, str) else "" for key, name in rows if isinstance(key, str)}
            key = _chosen(names, run, path)
            params = base.execute("SELECT key, value FROM params WHERE run_uuid = ?", (key,))
            config = {name: _plain(value) for name, value in params if isinstance(name, str) and isinstance(value, str)}
            environment = _environment(_tags(base, key))
    except (sqlite3.Error, UnicodeDecodeError) as error:  # its messages quote the file
        raise FormatError(f"{path} is no database of MLflow: {error}.") from error
    return Log(
        name=names[key] or key,
        entries=_metrics(path, key),
        config=config,
        environment=environment,
        time=path.stat().st_mtime,
    )


def _tags(base: sqlite3.Connection, key: str) -> dict[str, str]:
    is_table = base.execute("SELECT 1 FROM sqlite_master WHERE name = 'tags' AND type = 'table' AND rootpage > 0")
    if not is_table.fetchone():  # a view may have no end
        return {}
    rows = base.execute("SELECT key, value FROM tags WHERE run_uuid = ? AND key IN (?, ?)", (key, _PROGRAM, _COMMIT))
    return {name: value for name, value in rows if isinstance(value, str)}


def _environment(tags: Mapping[str, str]) -> dict[str, Any]:
    """What MLflow's own tags say."""
    program, commit = tags.get(_PROGRAM), tags.get(_COMMIT)
    return ({"command": [program]} if program else {}) | ({"commit": commit} if commit else {})


def _open(path: Path) -> sqlite3.Connection:
    """The database, opened for reading only; nothing that it defines itself is run.

    Raises:
        FormatError: a table is none: a view may be without end.
    """
    file = path.resolve()
    for beside in ("", "-wal", "-shm", "-journal"):  # which SQLite opens as well
        opening.check(file.with_name(file.name + beside), depth=1)
    base = sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)
    try:
        base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _CELL_BYTES)
        base.execute("PRAGMA trusted_schema = OFF")
        kinds = dict(base.execute("SELECT name, type FROM sqlite_master WHERE rootpage > 0"))
        if not all(kinds.get(name) == "table" for name in ("runs", "params", "metrics")):
            raise FormatError(f"{path} is no database of MLflow: it has no table runs, params or metrics.")
    except BaseException:
        base.close()
        raise
    return base


def _metrics(path: Path, run: str) -> Iterator[Logged]:
    query = "SELECT key, step, value, is_nan, timestamp FROM metrics WHERE run_uuid = ? ORDER BY step, timestamp"
    try:
        with closing(_open(path)) as base:
            for key, said, value, is_nan, timestamp in base.execute(query, (run,)):
                known, at, time = math.nan if is_nan else number(value), step(said or 0), number(timestamp)
                if not isinstance(key, str) or known is None or at is None:
                    raise FormatError(f"{path} has a metric that is not made of a name, a number and a step.")
                if abs(known) >= _LARGEST:
                    known = math.copysign(math.inf, known)
                yield Logged(key, at, known, None if time is None else time / 1000)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise FormatError(f"{path} cannot be read: {error}.") from error


def _of_folder(root: Path, run: str | None) -> Log:
    homes = [file.parent for file in opening.files(root, "meta.yaml")]
    folders = [root] if (root / "metrics").is_dir() else [home for home in homes if home.parent.parent == root]
    if not folders:
        folders = [home for home in homes if home.parent == root and (home / "metrics").is_dir()]
    by_id = {folder.name: folder for folder in folders if ".trash" not in folder.parts}
    names = {key: _run_name(root, folder) for key, folder in by_id.items()}
    key = _chosen(names, run, root)
    folder = by_id[key]
    config: dict[str, Any] = {}
    for file in (
        opening.files(folder / "params") if opening.is_folder(folder / "params", depth=_depth(root, folder)) else ()
    ):
        config[file.relative_to(folder / "params").as_posix()] = _plain(_text(root, file))
    tags = (folder / "tags" / name for name in (_PROGRAM, _COMMIT))
    said = {file.name: _text(root, file) for file in tags if opening.is_file(file, depth=_depth(root, folder) + 1)}
    return Log(
        name=names[key] or key,
        entries=_lines(root, folder),
        config=config,
        environment=_environment(said),
        time=folder.stat().st_mtime,
    )


def _text(root: Path, file: Path) -> str:
    with opening.reading_below(root, file) as opened:
        return opened.read(_CELL_BYTES).decode(errors="replace").strip("\n")


def _depth(root: Path, folder: Path) -> int:
    """How many names a folder of a run's folder is below the root."""
    return len(folder.relative_to(root).parts) + 1


def _plain(text: str) -> str | int | float:
    """A parameter as it was given: MLflow keeps all of them as text.

    Example:
        >>> _plain("32"), _plain("1e-3"), _plain("adam")
        (32, 0.001, 'adam')
    """
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _run_name(root: Path, folder: Path) -> str:
    try:
        with opening.reading_below(root, folder / "meta.yaml") as file:
            content = file.read(_CELL_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return ""
    for line in content.splitlines():
        if line.startswith("run_name:"):
            return line.partition(":")[2].strip().strip("'\"")
    return ""


def _lines(root: Path, folder: Path) -> Iterator[Logged]:
    """A file a metric, a line a number: time in milliseconds, value, step."""
    metrics = folder / "metrics"
    for file in opening.files(metrics) if opening.is_folder(metrics, depth=_depth(root, folder)) else ():
        name = file.relative_to(metrics).as_posix()
        found: list[Logged] = []
        with opening.reading_below(root, file) as opened:
            for line in opening.lines_of(opened, longest=_LINE_BYTES, limit=_MOST_BYTES):
                text = (line or b"a line that is too long\n").decode(errors="replace")
                words = text.split()
                value = number(words[1]) if len(words) >= 2 else None
                time = number(words[0]) if words else None
                at = step(words[2]) if len(words) > 2 else len(found)
                if value is None or time is None or at is None:
                    if not text.endswith("\n"):
                        break  # torn
                    raise FormatError(f"{file} has a line that is not 'time value step': {text.strip()[:60]!r}.")
                found.append(Logged(name, at, value, time / 1000))
        # One metric's numbers, in memory: they come in the order of the calls, and several may share a step.
        yield from sorted(found, key=lambda entry: (entry.step, entry.time or 0.0))
