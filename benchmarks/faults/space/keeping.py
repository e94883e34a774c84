"""What is kept of trainings: a manifest with a line each, and the recorded rows of a run in one file.

FOLDER/manifest.jsonl holds recipe, role, outcome and losses; FOLDER/rows/KEY.zip the run as Sonde recorded it. A line
is written when its training is over and its rows lie in place, so that a kill at any instant costs one training.
"""

import contextlib
import json
import math
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def append(folder: Path, row: dict[str, Any]) -> None:
    """Add a line to the manifest."""
    append_line(folder / "manifest.jsonl", row)


def append_line(path: Path, row: dict[str, Any]) -> None:
    """Add a line to a file, which is on the disk when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(_plain(row), allow_nan=False) + "\n")
        file.flush()
        os.fsync(file.fileno())


def read(folder: Path) -> dict[str, dict[str, Any]]:
    """The manifest by key; a torn last line is left out."""
    return {row["key"]: row for row in lines(folder / "manifest.jsonl")}


def lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a file, none where it is missing; a torn one is left out."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else ():
        with contextlib.suppress(json.JSONDecodeError):
            found.append(json.loads(line))
    return found


def number(told: Any) -> float:
    """A number of the manifest, where those that are not finite are words."""
    return math.nan if told is None else float(told)


def pack(run: Path, folder: Path, key: str) -> None:
    """Put a recorded run into one file."""
    rows = folder / "rows"
    rows.mkdir(parents=True, exist_ok=True)
    partial = rows / f"{key}.partial"
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(run.rglob("*")):
            if path.is_file() and path.suffix not in (".pyramid", ".lock"):  # both are made from, or for, the others
                packed.write(path, path.relative_to(run))
    partial.replace(rows / f"{key}.zip")


@contextlib.contextmanager
def unpacked(folder: Path, key: str) -> Iterator[Path]:
    """The run as a folder, for as long as the context lasts; in memory where the machine offers that.

    FOLDER/rows/KEY may lie there unpacked as well, which is faster.
    """
    if (folder / "rows" / key).is_dir():
        yield folder / "rows" / key
        return
    shared = Path("/dev/shm")
    scratch = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else None))
    try:
        with zipfile.ZipFile(folder / "rows" / f"{key}.zip") as packed:
            packed.extractall(scratch)
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _plain(told: Any) -> Any:
    if isinstance(told, float):
        return told if math.isfinite(told) else str(told)
    if isinstance(told, dict):
        return {name: _plain(value) for name, value in told.items()}
    return [_plain(value) for value in told] if isinstance(told, list | tuple) else told
