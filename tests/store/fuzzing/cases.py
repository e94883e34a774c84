"""All cases: of a run and of every kind of log."""

import itertools
import json
import sqlite3
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.store.fuzzing import seeds
from tests.store.fuzzing.mutations import (
    BAD_VALUES,
    FEW_VALUES,
    Case,
    bomb_case,
    byte_cases,
    in_place,
    json_cases,
    line_cases,
    log_cases,
    parquet_cases,
    pyramid_cases,
    replaced_cases,
)

from sonde.sinks.event_records import record

_STEP, _RANK = "tables/step/b0/seg-00000000-00000000", "ranks/1/tables/step/b0/seg-00000000-00000000"
_SHAPES = "histograms/shapes/b0/seg-00000000-00000000"
_FOLDERS = ("tables", "tables/step", "tables/step/b0", "tables/step/b1", _STEP, "histograms", "ranks", "ranks/1")


def run_cases(seed: Path, bomb: Path, *, bits: int, first_seed: int = 0) -> list[Case]:
    """Those of a run.

    Args:
        seed: The whole run.
        bomb: A file of `make_bomb`.
        bits: How many random changes of each file.
        first_seed: Of the random changes.
    """
    files = sorted(str(path.relative_to(seed)) for path in seed.rglob("*") if path.is_file())
    documents = ("run.json", "state.json", f"{_STEP}/segment.json", f"{_SHAPES}/segment.json")
    found: list[Iterator[Case]] = [_document_cases(seed, file) for file in documents]
    for file in ("branches.jsonl", "tables/step/columns.jsonl", "histograms/shapes/columns.jsonl", "events.jsonl"):
        found += [_lines_cases(seed, file), line_cases(file)]
    found.append(log_cases("tables/step/b1/rows-00000000.log"))
    found += [pyramid_cases(f"{_STEP}/block-0000.pyramid"), pyramid_cases(f"{_RANK}/block-0000.pyramid")]
    found += [parquet_cases(f"{_STEP}/block-0000.parquet", 4, 1), parquet_cases(f"{_SHAPES}/block-0000.parquet", 1, 3)]
    found.append(iter([bomb_case("tables/evaluation/b0/seg-00000000-00000000/block-0000.parquet", bomb)]))
    some = [file for file in files if not file.startswith(("tables/layers", "ranks")) or file == "ranks/1/run.json"]
    found += [replaced_cases(file) for file in some]
    found += [replaced_cases(folder) for folder in _FOLDERS]
    for number, file in enumerate(files):
        found.append(byte_cases(file, (seed / file).stat().st_size, first_seed + number, bits))
    return list(itertools.chain.from_iterable(found))


def _document_cases(seed: Path, file: str) -> Iterator[Case]:
    document = json.loads((seed / file).read_text())
    text = json.dumps({key: value for key, value in document.items() if key not in ("sessions", "environment")})
    yield from json_cases(file, text, None)
    for key in ("sessions", "environment"):
        if key in document:
            whole = json.dumps({**json.loads(text), key: document[key]})
            yield from (case for case in json_cases(file, whole, None, values=FEW_VALUES) if f": {key}" in case.name)


def _lines_cases(seed: Path, file: str) -> Iterator[Case]:
    for number, line in enumerate((seed / file).read_text().splitlines()):
        yield from json_cases(file, line, number, values=tuple(BAD_VALUES) if number == 0 else FEW_VALUES)


# Logs.


def log_file_cases(seed: Path, *, bits: int, first_seed: int = 0) -> dict[str, list[Case]]:
    """Those of the logs of other programs, by what is imported."""
    files = sorted(str(path.relative_to(seed)) for path in seed.rglob("*") if path.is_file())
    found: dict[str, list[Iterator[Case]]] = {
        source: [] for source in (*seeds.LOGS.values(), *seeds.OTHER_LOGS.values())
    }
    for number, file in enumerate(files):
        of = found[next(source for source in found if file == source or file.startswith(f"{source}/"))]
        of.append(replaced_cases(file))
        of.append(byte_cases(file, (seed / file).stat().st_size, first_seed + number, bits))
    board = next(file for file in files if file.startswith("tensorboard/"))
    found["tensorboard"].append(_tensorboard_cases(board))
    found["csv/log.csv"] += [_csv_cases(), line_cases("csv/log.csv")]
    wandb = next(file for file in files if file.startswith("wandb/"))
    found["wandb"].append(_wandb_cases(wandb))
    history = next(file for file in files if file.startswith("history/"))
    found["history"] += [_lines_cases(seed, history), line_cases(history)]
    metric = "mlflow/metrics/train_loss"
    found["mlflow"] += [_metric_cases(metric), line_cases(metric), _mlflow_folder_cases()]
    found["sqlite/mlflow.db"].append(_database_cases())
    return {source: list(itertools.chain.from_iterable(cases)) for source, cases in found.items()}


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _within(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _tensorboard_cases(file: str) -> Iterator[Case]:
    time = b"\x09" + struct.pack("<d", seeds.BEGAN)
    value = _within(1, b"Loss") + b"\x15" + struct.pack("<f", 0.5)
    events = {
        "step -1": time + b"\x10" + _varint(2**64 - 1) + _within(5, _within(1, value)),
        "largest step": time + b"\x10" + _varint(2**63 - 1) + _within(5, _within(1, value)),
        "time NaN": b"\x09" + struct.pack("<d", float("nan")) + _within(5, _within(1, value)),
        "time infinite": b"\x09" + struct.pack("<d", float("inf")) + _within(5, _within(1, value)),
        "short time": b"\x0d" + struct.pack("<f", 1.0) + _within(5, _within(1, value)),
        "time as text": _within(1, b"soon") + _within(5, _within(1, value)),
        "no tag": time + _within(5, _within(1, b"\x15" + struct.pack("<f", 0.5))),
        "tag of controls": time + _within(5, _within(1, _within(1, b"\x1b[31m\0\xff") + b"\x15\0\0\0\0")),
        "long tag": time + _within(5, _within(1, _within(1, b"x" * 100_000) + b"\x15\0\0\0\0")),
        "tag of dots": time + _within(5, _within(1, _within(1, b"../../outside") + b"\x15\0\0\0\0")),
        "value as text": time + _within(5, _within(1, _within(1, b"a") + _within(2, b"abc"))),
        "value of 8 bytes": time + _within(5, _within(1, _within(1, b"a") + b"\x11" + b"\0" * 8)),
        "tensor": time + _within(5, _within(1, _within(1, b"a") + _within(8, b"\x08\x01" + _within(5, b"\0" * 7)))),
        "tensor of a type": time + _within(5, _within(1, _within(1, b"a") + _within(8, b"\x08\xff\xff\x03"))),
        "session": time + b"\x10\x05" + _within(7, b"\x08\x01"),
        "session at -1": time + b"\x10" + _varint(2**64 - 1) + _within(7, b"\x08\x01"),
        "hparams": time + _within(5, _within(1, _hparams(b"\x11" + b"\xff" * 8))),
        "short hparams": time + _within(5, _within(1, _hparams(_within(2, b"abc")))),
        "groups": b"\x0b\x0c" * 100,
        "field of 2^62": b"\x0a" + _varint(2**62),
        "number without end": b"\x10" + b"\xff" * 20,
        "nothing": b"",
    }
    for name, text in BAD_VALUES.items():
        meta = _within(9, _within(1, _within(1, b"text")))
        tensor = _within(8, b"\x08\x07" + _within(8, text.encode()))
        events[f"text is {name}"] = time + _within(5, _within(1, _within(1, b"args/text_summary") + meta + tensor))
    for name, event in events.items():
        made = record(event) if len(event) >= 4 else record(b"\x10\x00\x10\x00")
        yield in_place(name, file, lambda content, made: content + made, made)
    for length in (0, 2**31, 2**62, 2**64 - 1):
        head = struct.pack("<Q", length)
        checked = head + record(head)[8 + 4 + 8 :]
        yield in_place(f"a record of {length}", file, lambda content, made: content + made + b"\0" * 64, checked)


def _hparams(number: bytes) -> bytes:
    entry = _within(1, b"lr") + _within(2, number)
    plugin = _within(1, b"hparams") + _within(2, _within(3, _within(1, entry)))
    return _within(1, b"_hparams_") + _within(9, _within(1, plugin)) + b"\x15\0\0\0\0"


_CELLS = {
    "empty": "",
    "text": "x",
    "NaN": "nan",
    "infinite": "inf",
    "1e999": "1e999",
    "10^400": "1" + "0" * 400,
    "10^5000": "1" + "0" * 5000,
    "minus": "-1",
    "2^63": str(2**63),
    "2^64": str(2**64),
    "fraction": "0.5",
    "zero byte": "\0",
    "escape": "\x1b[31m",
    "quote": '"',
    "long": "9" * 100_000,
    "longer": "x" * 200_000,
    "date": "9999-12-31T23:59:59",
    "early date": "0001-01-01T00:00:00+23:59",
    "underscore": "1_000",
    "arabic digits": "٣",
}


def _csv_cases() -> Iterator[Case]:
    for column in range(4):
        for name, cell in _CELLS.items():
            for row in (0, 6):

                def edit(content: bytes, column: int = column, cell: str = cell, row: int = row) -> bytes:
                    lines = content.decode().split("\n")
                    cells = lines[row].split(",")
                    cells[column] = cell
                    lines[row] = ",".join(cells)
                    return "\n".join(lines).encode()

                yield in_place(f"column {column} row {row} is {name}", "csv/log.csv", edit)
    yield in_place("a million columns", "csv/log.csv", lambda _: b"," * 1_000_000 + b"\n" + b"1," * 1_000_000 + b"\n")
    yield in_place("long rows", "csv/log.csv", lambda content: content + (b"1," * 100_000 + b"\n") * 5)
    yield in_place("one name twice", "csv/log.csv", lambda content: content.replace(b"phase", b"step"))


def _metric_cases(file: str) -> Iterator[Case]:
    for place in range(3):
        for name, cell in _CELLS.items():

            def edit(content: bytes, place: int = place, cell: str = cell) -> bytes:
                words = ["1700000000000", "0.5", "3"]
                words[place] = cell
                return content + " ".join(words).encode() + b"\n"

            yield in_place(f"word {place} is {name}", file, edit)


def _mlflow_folder_cases() -> Iterator[Case]:
    for name, cell in _CELLS.items():
        yield in_place(f"is {name}", "mlflow/params/lr", lambda _, cell: cell.encode(), cell)
        yield in_place(f"name is {name}", "mlflow/meta.yaml", lambda _, cell: f"run_name: {cell}\n".encode(), cell)
    for name in ("..", ".", "a/b", "/", "../../outside", "'"):
        yield in_place(f"name is {name}", "mlflow/meta.yaml", lambda _, name: f"run_name: {name}\n".encode(), name)


def _database_cases() -> Iterator[Case]:
    file = "sqlite/mlflow.db"
    values: dict[str, Any] = {
        "null": None,
        "text": "x",
        "bytes": b"\xff\0",
        "2^63 - 1": 2**63 - 1,
        "-2^63": -(2**63),
        "infinite": float("inf"),
        "long": "x" * 100_000,
        "digits": "9" * 5000,
    }
    for table, column in (
        ("metrics", "key"),
        ("metrics", "value"),
        ("metrics", "step"),
        ("metrics", "timestamp"),
        ("metrics", "is_nan"),
        ("params", "key"),
        ("params", "value"),
        ("runs", "name"),
        ("runs", "lifecycle_stage"),
    ):
        for name, value in values.items():
            yield Case(f"{file}: {table}.{column} is {name}", _changing(file, table, column, value))
    for table in ("metrics", "params", "runs"):
        yield Case(f"{file}: no table {table}", _executing(file, f"DROP TABLE {table}"))
        endless = "WITH RECURSIVE a(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM a) SELECT n FROM a"
        columns = "run_uuid, key, value, step, timestamp, is_nan, name, lifecycle_stage"
        view = f"CREATE VIEW {table} ({columns}) AS SELECT n, n, n, n, n, n, n, '' FROM ({endless})"
        yield Case(f"{file}: {table} without end", _executing(file, f"DROP TABLE {table}; {view}"))


def _changing(file: str, table: str, column: str, value: Any) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        base = sqlite3.connect(folder / file)
        base.execute("PRAGMA writable_schema = ON")
        base.execute("UPDATE sqlite_master SET sql = replace(replace(sql, 'NOT NULL', ''), 'CHECK', '--')")
        base.commit()
        base.close()
        base = sqlite3.connect(folder / file)
        try:
            base.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = 1", (value,))
            base.commit()
        except sqlite3.Error:
            pass  # SQLite itself keeps it out
        finally:
            base.close()

    return damage


def _executing(file: str, script: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        base = sqlite3.connect(folder / file)
        base.executescript(script)
        base.close()

    return damage


_PIECE = struct.Struct("<IHB")


def _wandb_cases(file: str) -> Iterator[Case]:
    for name, text in BAD_VALUES.items():
        for key in (b"loss", b"_step", b"_timestamp", b"global_step"):
            item = _within(1, _within(1, key) + _within(16, text.encode()))
            yield in_place(f"{key.decode()} is {name}", file, _appending(_within(2, item)))
        item = _within(1, _within(2, b"a") + _within(2, b"b") + _within(16, text.encode()))
        yield in_place(f"config is {name}", file, _appending(_within(5, item)))
    odd = {
        "no key": _within(2, _within(1, _within(16, b"1"))),
        "key of controls": _within(2, _within(1, _within(1, b"\x1b[31m\0\xff") + _within(16, b"1"))),
        "long key": _within(2, _within(1, _within(1, b"x" * 20_000) + _within(16, b"1"))),
        "many keys": _within(2, _within(1, b"".join(_within(2, b"x") for _ in range(5000)) + _within(16, b"1"))),
        "deep config": _within(5, _within(1, b"".join(_within(2, b"x") for _ in range(5000)) + _within(16, b"1"))),
        "step of text": _within(2, _within(2, b"abc")),
        "step 2^64": _within(2, _within(2, b"\x08" + _varint(2**64 - 1))),
        "field of 2^62": b"\x12" + _varint(2**62),
        "groups": b"\x0b\x0c" * 100,
    }
    for name, content in odd.items():
        yield in_place(name, file, _appending(content))
    for kind in (0, 2, 3, 4, 5, 255):
        yield in_place(f"piece of kind {kind}", file, _appending(b"\x12\x00", kind=kind))
    yield in_place("first pieces without end", file, lambda content: content[:7] + _piece(b"x" * 32_000, 2) * 1)


def _piece(content: bytes, kind: int) -> bytes:
    return _PIECE.pack(zlib.crc32(content, zlib.crc32(bytes([kind]))), len(content), kind) + content


def _appending(record_: bytes, *, kind: int = 1) -> Callable[[bytes], bytes]:
    """Adds a record to a file of W&B, in the form of LevelDB's logs."""

    def edit(content: bytes) -> bytes:
        out, rest, is_first = bytearray(content), record_, True
        while True:
            room = 32 * 1024 - len(out) % (32 * 1024)
            if room < _PIECE.size:
                out += b"\0" * room
                continue
            piece, rest = rest[: room - _PIECE.size], rest[room - _PIECE.size :]
            if kind != 1:
                out += _piece(piece, kind)
            else:
                out += _piece(piece, (1 if not rest else 2) if is_first else (4 if not rest else 3))
            is_first = False
            if not rest:
                return bytes(out)

    return edit
