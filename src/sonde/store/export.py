"""A run as one file that other programs read."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sonde.core import strict_json
from sonde.store.reader import Run, load

if TYPE_CHECKING:
    import pyarrow as pa


def export(
    run: Run | str | os.PathLike[str], out: str | os.PathLike[str], *, to: str | None = None, tags: str = "*"
) -> Path:
    """Write a run's series into one file, a row a step; the file appears whole or not at all.

    Args:
        run: What to write, or its folder.
        out: The file; one that exists is replaced.
        to: `parquet`, `csv` or `jsonl`; as the file's ending says where left out. In CSV a value that was not measured
            is empty and NaN is `nan`; in JSON lines it is left out and NaN is `"NaN"`.
        tags: Which series, as a shell-style pattern.

    Returns:
        The file's path.

    Raises:
        RunNotFound, RunUnreadable: there is no run there.
        ValueError: there is no such format.
        OSError: the file cannot be written.
    """
    path = Path(out)
    form = path.suffix.lower().removeprefix(".") if to is None else to
    if form not in FORMATS:
        what = f"`export(to={to!r})`" if to is not None else f"`export(out=...)` ends in {path.suffix!r}: the format"
        raise ValueError(f"{what} must be one of {', '.join(FORMATS)}.")
    opened = run if isinstance(run, Run) else load(run)
    table = opened.table(tags)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        FORMATS[form](table, temporary)
        temporary.replace(path)
    except OSError as error:  # about the file that was asked for, not the hidden one
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _parquet(table: "pa.Table", path: Path) -> None:
    import pyarrow.parquet as pq

    with path.open("wb") as file:  # Arrow takes no path that is not UTF-8
        pq.write_table(table, file, compression="zstd")


def _csv(table: "pa.Table", path: Path) -> None:
    import csv

    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table.column_names)
        for batch in table.to_batches(max_chunksize=4096):
            writer.writerows(zip(*(_texts(column) for column in batch.columns), strict=True))


def _texts(column: Any) -> list[object]:
    # float32 in its shortest form that reads back equal; through a Python float it would show digits that were never
    # measured.
    values = column.to_numpy(zero_copy_only=False)
    null = column.is_null().to_numpy(zero_copy_only=False)
    return ["" if empty else str(value) for value, empty in zip(values, null, strict=True)]


def _jsonl(table: "pa.Table", path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for batch in table.to_batches(max_chunksize=4096):
            for row in batch.to_pylist():
                line = {tag: value for tag, value in row.items() if value is not None}
                file.write(strict_json.dumps(line) + "\n")


FORMATS: dict[str, Callable[["pa.Table", Path], None]] = {"parquet": _parquet, "csv": _csv, "jsonl": _jsonl}
