"""The rows of a run in one small file, and the run made of them again.

A file is xz of a line of JSON (the model table, the events with a step, each table's columns) and behind it the numbers
of each table: steps, milliseconds and values, each kind together, which is some 30 KB for a small training.
"""

import heapq
import itertools
import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import sonde
from sonde.core.frames import Columns, Frame
from sonde.core.model_table import ModelTable
from sonde.store.reader import Run


def packed(run: Run) -> bytes:
    """What a diagnosis of the run needs."""
    tables: list[dict[str, Any]] = []
    numbers: list[bytes] = []
    for rows in run.frames():
        for columns, frames in itertools.groupby(rows, key=lambda frame: frame.columns):
            found = list(frames)
            tables.append({"table": columns.table, "tags": list(columns.tags), "rows": len(found)})
            numbers += _bytes(found)
    events = [[event.kind, event.step, event.data] for event in run.events() if event.step is not None]
    head = {"model": None if run.model is None else run.model.to_json(), "events": events, "tables": tables}
    return lzma.compress(json.dumps(head).encode() + b"\n" + b"".join(numbers), preset=9)


def _bytes(frames: list[Frame]) -> Iterator[bytes]:
    yield np.array([frame.step for frame in frames], np.int64).tobytes()
    yield np.array([round(1e3 * frame.time) for frame in frames], np.int64).tobytes()
    yield np.stack([frame.values for frame in frames]).T.tobytes()


def unpack(file: Path, folder: Path) -> None:
    """Record the run anew."""
    head, _, numbers = lzma.decompress(file.read_bytes()).partition(b"\n")
    told = json.loads(head)
    with sonde.record(folder) as writer:
        if told["model"] is not None:
            writer.describe(ModelTable.from_json(told["model"]))
        for kind, step, data in told["events"]:
            writer.event(kind, step=step, data=data)
        for frame in heapq.merge(*_tables(told["tables"], numbers), key=lambda frame: frame.step):
            writer.append(frame)


def _tables(told: list[dict[str, Any]], numbers: bytes) -> Iterator[list[Frame]]:
    at = 0
    for table in told:
        num, columns = table["rows"], Columns(table["table"], table["tags"])
        steps, times = np.frombuffer(numbers, np.int64, 2 * num, at).reshape(2, num)
        at += 16 * num
        values = np.frombuffer(numbers, np.float32, num * columns.width, at).reshape(columns.width, num).T
        at += 4 * num * columns.width
        rows = zip(steps.tolist(), times.tolist(), np.ascontiguousarray(values), strict=True)
        yield [Frame(columns, step, when / 1e3, row) for step, when, row in rows]
