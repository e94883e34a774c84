"""MLflow's records as a log, read without its package: a database of SQLite, or a folder `mlruns`."""

import math
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from sonde.core.errors import FormatError, RunNotFound
from sonde.store.environment import redact
from sonde.store.importing.foreign import Log, Logged, number

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
        return _of_database(database, run) if database.is_file() else _of_folder(path, run)
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
            names = {key: name or "" for key, name in rows}
            key = _chosen(names, run, path)
            params = base.execute("SELECT key, value FROM params WHERE run_uuid = ?", (key,))
            config = {name: _plain(value) for name, value in params}
            has_tags = base.execute("SELECT 1 FROM sqlite_master WHERE name = 'tags'").fetchone()
            tags = base.execute("SELECT key, value FROM tags WHERE run_uuid = ?", (key,)) if has_tags else ()
            environment = _environment(dict(tags))
    except sqlite3.DatabaseError as error:
        raise FormatError(f"{path} is no database of MLflow: {error}.") from error
    return Log(
        name=names[key] or key,
        entries=_metrics(path, key),
        config=config,
        environment=environment,
        time=path.stat().st_mtime,
    )


def _environment(tags: Mapping[str, str]) -> dict[str, Any]:
    """What MLflow's own tags say."""
    program, commit = tags.get("mlflow.source.name"), tags.get("mlflow.source.git.commit")
    return ({"command": redact([program])} if program else {}) | ({"commit": commit} if commit else {})


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)


def _metrics(path: Path, run: str) -> Iterator[Logged]:
    query = "SELECT key, step, value, is_nan, timestamp FROM metrics WHERE run_uuid = ? ORDER BY step, timestamp"
    try:
        with closing(_open(path)) as base:
            for key, step, value, is_nan, timestamp in base.execute(query, (run,)):
                known = math.nan if is_nan else float(value)
                if abs(known) >= _LARGEST:
                    known = math.copysign(math.inf, known)
                yield Logged(key, int(step or 0), known, timestamp / 1000)
    except sqlite3.DatabaseError as error:
        raise FormatError(f"{path} cannot be read: {error}.") from error


def _of_folder(root: Path, run: str | None) -> Log:
    folders = [root] if (root / "metrics").is_dir() else [file.parent for file in sorted(root.glob("*/*/meta.yaml"))]
    if not folders:
        folders = [file.parent for file in sorted(root.glob("*/meta.yaml")) if (file.parent / "metrics").is_dir()]
    by_id = {folder.name: folder for folder in folders if ".trash" not in folder.parts}
    names = {key: _run_name(folder) for key, folder in by_id.items()}
    key = _chosen(names, run, root)
    folder = by_id[key]
    config: dict[str, Any] = {}
    params = folder / "params"
    for file in sorted(params.rglob("*")) if params.is_dir() else ():
        if file.is_file():
            text = file.read_text(encoding="utf-8", errors="replace")
            config[file.relative_to(params).as_posix()] = _plain(text.strip("\n"))
    tags = {name: folder / "tags" / name for name in ("mlflow.source.name", "mlflow.source.git.commit")}
    said = {name: file.read_text(encoding="utf-8", errors="replace") for name, file in tags.items() if file.is_file()}
    return Log(
        name=names[key] or key,
        entries=_lines(folder / "metrics"),
        config=config,
        environment=_environment(said),
        time=folder.stat().st_mtime,
    )


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


def _run_name(folder: Path) -> str:
    meta = folder / "meta.yaml"
    if not meta.is_file():
        return ""
    for line in meta.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("run_name:"):
            return line.partition(":")[2].strip().strip("'\"")
    return ""


def _lines(metrics: Path) -> Iterator[Logged]:
    """A file a metric, a line a number: time in milliseconds, value, step."""
    for file in sorted(metrics.rglob("*")) if metrics.is_dir() else ():
        if not file.is_file():
            continue
        name = file.relative_to(metrics).as_posix()
        found: list[Logged] = []
        with file.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                words = line.split()
                value = number(words[1]) if len(words) >= 2 else None
                time = number(words[0]) if words else None
                if value is None or time is None or (len(words) > 2 and number(words[2]) is None):
                    if not line.endswith("\n"):
                        break  # torn
                    raise FormatError(f"{file} has a line that is not 'time value step': {line.strip()[:60]!r}.")
                found.append(Logged(name, int(float(words[2])) if len(words) > 2 else len(found), value, time / 1000))
        # One metric's numbers, in memory: they come in the order of the calls, and several may share a step.
        yield from sorted(found, key=lambda entry: (entry.step, entry.time or 0.0))
