"""Where things lie in a run's folder.

```
run.json                     who, when, configuration, environment, sessions, model table; schema version
state.json                   how the run stands; replaced about once a second while it is live
events.jsonl                 findings, actions, notes: one JSON object a line
branches.jsonl               the lines of steps (a run that went back has several)
writer.lock                  held (flock) by the process that records; readers leave it alone
tables/<table>/              one cadence and family of series
    columns.jsonl            the tags, at most 1,000 a line, in the order of their columns; only ever grows
    b0/                      branch 0
        rows-00000007.log    the live tail: fixed-width rows with a checksum each
        seg-00000000-00000006/
            segment.json     rows, columns, steps
            block-0000.parquet   step, time and up to 500 columns, one row group
            block-0000.pyramid   min, mean, max at coarser and coarser zoom
histograms/<table>/          the same, with a list of counts in each cell
snapshots/                   whatever was kept for a closer look
ranks/<rank>/                of several processes that train together, what the others record: a run each
```

A log is numbered; a segment names the first and the last log that it replaces. What a wider segment covers is
superseded: readers skip it and the writer deletes it, so a crash between the two leaves nothing twice.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sonde.core import strict_json
from sonde.core.errors import FormatError, RunNotFound, RunUnreadable, SchemaTooNew
from sonde.core.json_fields import member, moment, text
from sonde.store import opening
from sonde.store.environment import redactor

SCHEMA = 1

RUN, STATE, EVENTS, BRANCHES, LOCK = "run.json", "state.json", "events.jsonl", "branches.jsonl", "writer.lock"
TABLES, HISTOGRAMS, SNAPSHOTS, RANKS = "tables", "histograms", "snapshots", "ranks"
COLUMNS, SEGMENT = "columns.jsonl", "segment.json"

# How many of the last names of a file's path lie inside of the run's folder: there no link is followed (`opening`).
IN_RUN, IN_TABLE, IN_BRANCH, IN_SEGMENT = 1, 3, 4, 5

# Far above what is written, far below what a reader could not hold: JSON takes up to 24 times its bytes in memory.
_INFO_BYTES = 32 << 20
_LINES_BYTES, _LINE_BYTES = 256 << 20, 8 << 20

_LISTINGS = 100

_LOG = re.compile(r"rows-(\d{8})\.log")
_SEGMENT_DIR = re.compile(r"seg-(\d{8})-(\d{8})")
_BRANCH_DIR = re.compile(r"b(\d+)")


def table_folder(run: Path, table: str, *, bins: int) -> Path:
    """The folder of a table."""
    return run / (TABLES if bins == 1 else HISTOGRAMS) / table


def branch_folder(table: Path, branch: int) -> Path:
    """The folder of a table's rows on one branch."""
    return table / f"b{branch}"


def branch_number(name: str) -> int | None:
    """The branch of a folder's name; None where it is something else."""
    match = _BRANCH_DIR.fullmatch(name)
    return int(match[1]) if match else None


def log_name(number: int) -> str:
    """The file name of a log."""
    return f"rows-{number:08d}.log"


def segment_name(first: int, last: int) -> str:
    """The folder name of the segment that replaces the logs `first` to `last`."""
    return f"seg-{first:08d}-{last:08d}"


def covered(name: str) -> tuple[int, int] | None:
    """The logs that a file or folder stands for, first and last; None where it is neither log nor segment."""
    if match := _LOG.fullmatch(name):
        return int(match[1]), int(match[1])
    if match := _SEGMENT_DIR.fullmatch(name):
        return int(match[1]), int(match[2])
    return None


def parts(folder: Path) -> list[str]:
    """The logs and segments of a branch that count, in order; superseded ones are left out."""
    names = _names(folder)
    # By first log, the widest cover first; at equal cover the segment ("s") before the log ("r") that it was made from.
    found = sorted(
        ((span[0], -span[1], name[0] == "r", name) for name in names if (span := covered(name))),
        key=lambda row: row[:3],
    )
    kept: list[str] = []
    reach = -1
    for _, negative_last, _, name in found:
        if -negative_last > reach:
            kept.append(name)
            reach = -negative_last
    return kept


def _names(folder: Path) -> list[str]:
    """What a folder holds, listed until two listings agree.

    A listing is no snapshot: it may miss a log that was just deleted and also the segment that just replaced it.
    """
    before: list[str] | None = None
    for _ in range(_LISTINGS):
        try:
            names = opening.names(folder, depth=IN_BRANCH - 1)
        except FileNotFoundError:
            return []
        if names == before:
            break
        before = names
    return before or []


def replace_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file, a line a key, so that a reader sees the old one or the new one, never half of it.

    Secrets are hidden: this and `event_line` are the two ways by which a text enters a run.
    """
    # Indented by `json` itself it would leave 33 objects that hold each other behind, every second: beside all that
    # torch keeps, the garbage collector looks for such rarely.
    shown = redactor().plain(value)
    lines = (f" {strict_json.dumps(key)}: {strict_json.dumps(own)}" for key, own in shown.items())
    opening.replace(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode(), depth=IN_RUN)


def event_line(kind: str, time: float, step: int | None, data: Mapping[str, Any]) -> bytes:
    """A line of the file of events, without secrets."""
    event = {"kind": kind, "time": time, "step": step, "data": data}
    return (strict_json.dumps(redactor().plain(event)) + "\n").encode()


def read_info(run: Path) -> dict[str, Any]:
    """`run.json`, checked.

    Raises:
        RunNotFound: there is no such folder, or it holds no run.
        RunUnreadable: `run.json` is damaged.
        SchemaTooNew: a newer Sonde wrote it.
    """
    try:
        info = strict_json.loads(opening.read_bytes(run / RUN, depth=IN_RUN, limit=_INFO_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        what = "is not a run (it has no run.json)" if run.is_dir() else "does not exist"
        raise RunNotFound(f"{run} {what}; `sonde runs DIR` lists the runs of a folder.") from None
    except OSError as error:
        raise RunUnreadable(f"{run / RUN} cannot be read: {error.strerror or error}.") from error
    except FormatError as error:
        raise RunUnreadable(f"{run / RUN} is damaged: {error}") from error
    schema = info.get("schema") if isinstance(info, dict) else None
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise RunUnreadable(f"{run / RUN} has no schema version; it is not a run of Sonde.")
    if schema > SCHEMA:
        raise SchemaTooNew(
            f"{run} was written by a newer Sonde (schema {schema}, this one reads up to {SCHEMA}); "
            "upgrade Sonde to read it."
        )
    try:
        for key, read in (("name", text), ("created", moment)):
            if key in info:
                member(info, key, read)
    except FormatError as error:
        raise RunUnreadable(f"{run / RUN} is damaged: {error}") from error
    assert isinstance(info, dict)
    return info


def read_lines(path: Path, *, depth: int = IN_RUN, problem: Callable[[str], None] | None = None) -> list[Any]:
    """The objects of a JSON-lines file; a damaged line is left out.

    Args:
        path: The file; one that is not there has no lines.
        depth: See `opening.descriptor`.
        problem: Told what cannot be read, and why; a last line that is torn is none.
    """
    found: list[Any] = []
    wrong: list[str] = []
    try:
        for line in opening.lines(path, depth=depth, longest=_LINE_BYTES, limit=_LINES_BYTES):
            if line is None:
                wrong.append("a line is too long, or the disk does not hold all of it.")
                continue
            try:
                found.append(strict_json.loads(line))
            except FormatError as error:
                if line.endswith(b"\n"):  # else it is torn: its writer is at it, or died
                    wrong.append(str(error))
    except FileNotFoundError:
        return []
    except OSError as error:
        wrong.append(error.strerror or str(error))
    if wrong and problem is not None:
        problem(wrong[0] if len(wrong) == 1 else f"{len(wrong)} lines are damaged, the first: {wrong[0]}")
    return found
