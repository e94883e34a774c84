"""Ways to damage a run or a log: each field of each file with each bad value, and each file as something else."""

import itertools
import json
import os
import random
import shutil
import socket
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

MARKER = "SOMEBODY-ELSES-SECRET"
TERABYTE = 1 << 40


@dataclass(frozen=True, slots=True)
class Case:
    """One way to damage a copy of the seed: `damage` gets the copy's folder, `outside` lies beside the folder of it."""

    name: str
    damage: Callable[[Path], None]
    records: bool = False
    """Whether a writer should try to record into it as well."""


def in_place(name: str, file: str, edit: Callable[..., bytes], *more: Any) -> Case:
    """A case in which one file has other bytes: what `edit` makes of them, and of `more`."""

    def damage(folder: Path) -> None:
        path = folder / file
        path.write_bytes(edit(path.read_bytes(), *more))

    return Case(f"{file}: {name}", damage)


# JSON.

_SENTINEL = "\x01SENTINEL\x01"
BAD_VALUES = {
    "null": "null",
    "true": "true",
    "minus one": "-1",
    "zero": "0",
    "fraction": "0.5",
    "2^31": str(2**31),
    "2^62": str(2**62),
    "2^63": str(2**63),
    "2^64": str(2**64),
    "10^400": "1" + "0" * 400,
    "10^5000": "1" + "0" * 5000,
    "1e999": "1e999",
    "-1e999": "-1e999",
    "1e300": "1e300",
    "bare NaN": "NaN",
    "NaN": '"NaN"',
    "-Infinity": '"-Infinity"',
    "empty text": '""',
    "text": '"x"',
    "digits": '"7"',
    "surrogate": '"\\ud800"',
    "controls": '"\\u0000\\u001b[31m\\n\\u202e"',
    "long text": json.dumps("x" * 100_000),
    "path": '"../../outside"',
    "empty list": "[]",
    "list": "[1, null, {}]",
    "empty object": "{}",
    "object": '{"a": 1, "\\ud800": [1]}',
    "deep": "[" * 10_000 + "]" * 10_000,
    "less deep": '{"a":' * 100 + "1" + "}" * 100,
}
FEW_VALUES = ("null", "2^64", "10^400", "1e999", "surrogate", "deep", "object", "long text")
_WAYS = ("missing", "twice")


def json_cases(
    file: str, text: str, line: int | None, *, values: tuple[str, ...] = tuple(BAD_VALUES)
) -> Iterator[Case]:
    """Each place of a JSON document with each bad value; `line` is that of the document in a file of lines."""
    document = json.loads(text)
    for place in _places(document):
        where = "/".join(map(str, place)) or "all"
        some = values if len(place) < 3 else tuple(itertools.islice(_turning(where, values), 6))
        for way in (*some, *(_WAYS if place and isinstance(place[-1], str) else ())):
            yield _json_case(file, document, place, way, line, where)


def _json_case(file: str, document: Any, place: tuple[Any, ...], way: str, line: int | None, where: str) -> Case:
    changed = _changed(document, place, way)

    def edit(content: bytes) -> bytes:
        if line is None:
            return changed.encode()
        lines = content.split(b"\n")
        lines[line] = changed.encode()
        return b"\n".join(lines)

    return in_place(f"{'' if line is None else f'line {line} '}{where} is {way}", file, edit)


def _changed(document: Any, place: tuple[Any, ...], way: str) -> str:
    copy = json.loads(json.dumps(document))
    if not place:
        return BAD_VALUES[way]
    inner = copy
    for key in place[:-1]:
        inner = inner[key]
    if way == "missing":
        del inner[place[-1]]
        return json.dumps(copy)
    before = json.dumps(inner[place[-1]])
    inner[place[-1]] = _SENTINEL
    text = json.dumps(copy)
    if way == "twice":
        key = json.dumps(place[-1])
        return text.replace(json.dumps(_SENTINEL), f"{before}, {key}: 10")
    return text.replace(json.dumps(_SENTINEL), BAD_VALUES[way])


def _places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _places(item, (*at, key))
    elif isinstance(value, list):
        for i, item in enumerate(value[:2]):
            yield from _places(item, (*at, i))


def _turning(where: str, values: tuple[str, ...]) -> Iterator[str]:
    """The values from another one on for each place."""
    first = zlib.crc32(where.encode()) % len(values)
    return itertools.islice(itertools.cycle(values), first, first + len(values))


def line_cases(file: str) -> Iterator[Case]:
    """A file of lines, damaged as a whole."""
    yield in_place("torn", file, lambda content: content[:-5])
    yield in_place("a line without end", file, lambda content: content + b'{"kind": "' + b"x" * (9 << 20))
    yield in_place("garbage", file, lambda content: content + bytes(range(256)) * 20 + b"\n" + content)
    yield in_place("zeros", file, lambda content: content + b"\0" * 4096 + b"\n" + content)
    yield in_place("not UTF-8", file, lambda content: content + b'{"kind": "\xff\xfe"}\n{"kind": "\xed\xa0\x80"}\n')
    yield in_place("UTF-16", file, lambda content: content.decode().encode("utf-16"))
    yield in_place("only line ends", file, lambda _: b"\n" * 100_000)
    yield in_place("backwards", file, lambda content: b"\n".join(reversed(content.split(b"\n"))))
    yield in_place("twice", file, lambda content: content + content)
    yield in_place("many lines", file, lambda content: content * 200)


# Something else in the place of a file or folder.


def replaced_cases(path: str, *, is_folder: bool = False) -> Iterator[Case]:
    """A file or folder that is something else."""
    others: dict[str, Callable[[Path, Path], object]] = {
        "a folder": lambda path, _: path.mkdir(),
        "a full folder": lambda path, _: (path / "inner").mkdir(parents=True),
        "a FIFO": lambda path, _: os.mkfifo(path),
        "a socket": _make_socket,
        "a link to a file": lambda path, outside: path.symlink_to(outside / "secret.txt"),
        "a link to a folder": lambda path, outside: path.symlink_to(outside),
        "a link to a twin": lambda path, outside: path.symlink_to(_twin(path, outside)),
        "a link to itself": lambda path, _: path.symlink_to(path.name),
        "a link to nothing": lambda path, outside: path.symlink_to(outside / "nothing"),
        "a link to zeros": lambda path, _: path.symlink_to("/dev/zero"),
        "a terabyte of nothing": lambda path, _: _sparse(path, b""),
        "a terabyte behind its content": lambda path, _: _sparse(path, _BEFORE.get(path.name, b"{}\n")),
        "empty": lambda path, _: path.write_bytes(b""),
        "gone": lambda path, _: None,
        "not to be read": _unreadable,
    }
    for name, make in others.items():

        def damage(folder: Path, make: Callable[[Path, Path], object] = make) -> None:
            place = folder / path
            outside = folder.parents[1] / "outside"
            _BEFORE.clear()
            if place.is_file():
                _BEFORE[place.name] = place.read_bytes()
            aside = folder.parents[1] / "aside"
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir()
            place.rename(aside / place.name)
            make(place, outside)

        yield Case(f"{path}: {name}", damage, records=True)


_BEFORE: dict[str, bytes] = {}


def _twin(path: Path, outside: Path) -> Path:
    """The thing itself, whole, but elsewhere: following the link would go unnoticed."""
    aside = path.parent
    while not (aside / "aside").is_dir():
        aside = aside.parent
    return aside / "aside" / path.name


def _make_socket(path: Path, _: Path) -> None:
    here = os.open(path.parent, os.O_RDONLY)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f"/proc/self/fd/{here}/{path.name}")
    finally:
        os.close(here)


def _sparse(path: Path, before: bytes) -> None:
    with path.open("wb") as file:
        file.write(before)
        file.truncate(TERABYTE)


def _unreadable(path: Path, _: Path) -> None:
    path.write_bytes(_BEFORE.get(path.name, b""))
    path.chmod(0)


# Bytes.


def byte_cases(file: str, size: int, seed: int, num: int) -> Iterator[Case]:
    """A file cut off, grown, and with other bits."""
    for length in sorted({0, 1, 8, size // 2, size - 1}):
        yield in_place(f"cut at {length}", file, lambda content, length: content[:length], length)
    yield in_place("grown", file, lambda content: content + content)
    for i in range(num):
        yield in_place(f"bits {seed}.{i}", file, lambda content, i: _flipped(content, seed * 1000 + i), i)


def _flipped(content: bytes, seed: int) -> bytes:
    rng = random.Random(seed)
    changed = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 4, 16])):
        if not changed:
            break
        at = rng.randrange(len(changed))
        match rng.randrange(4):
            case 0:
                changed[at] ^= 1 << rng.randrange(8)
            case 1:
                changed[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF])
            case 2:
                del changed[at : at + rng.randrange(1, 9)]
            case _:
                changed[at:at] = rng.randbytes(rng.randrange(1, 9))
    return bytes(changed)


# Row logs.

_LOG = struct.Struct("<8sIIQ")


def log_cases(file: str) -> Iterator[Case]:
    """A row log with other sizes in its header, and rows with other numbers, all with right checksums."""
    for width in (0, 1, 2, 7, 10**6, 2**31 - 1, 2**32 - 1):
        for number in (0, 2**64 - 1):
            yield in_place(
                f"width {width} number {number}", file, lambda content, w, n: _headed(content, w, n), width, number
            )
    for version in (0, 2, 2**32 - 1):
        yield in_place(f"version {version}", file, lambda content, v: _headed(content, 3, 0, v), version)
    for step in (-1, -(2**63), 2**63 - 1, 2**62, 0):
        yield in_place(f"step {step}", file, lambda content, s: _rewritten(content, step=s), step)
    for time in (float("nan"), float("inf"), -1e308, 1e308):
        yield in_place(f"time {time}", file, lambda content, t: _rewritten(content, time=t), time)
    for value in (float("inf"), -float("inf"), 3e38, 1e-45):
        yield in_place(f"value {value}", file, lambda content, v: _rewritten(content, value=v), value)


def _headed(content: bytes, width: int, number: int, version: int = 1) -> bytes:
    head = _LOG.pack(b"SONDEROW", version, width, number)
    return (head + struct.pack("<I", zlib.crc32(head))).ljust(64, b"\0") + content[64:] * 100


def _rewritten(
    content: bytes, *, step: int | None = None, time: float | None = None, value: float | None = None
) -> bytes:
    _, _, width, _ = _LOG.unpack_from(content)
    stride, seed = 20 + 4 * width, zlib.crc32(content[: _LOG.size])
    rows = bytearray(content)
    for at in range(64, len(content) - stride + 1, stride):
        if step is not None:
            struct.pack_into("<q", rows, at, step)
        if time is not None:
            struct.pack_into("<d", rows, at + 8, time)
        if value is not None:
            struct.pack_into("<f", rows, at + 16, value)
        struct.pack_into("<I", rows, at + stride - 4, zlib.crc32(bytes(rows[at : at + stride - 4]), seed))
    return bytes(rows)


# Pyramids.

_PYRAMID = struct.Struct("<8sIIQII")


def pyramid_cases(file: str) -> Iterator[Case]:
    """A pyramid with other sizes and figures."""
    for field, values in (
        (1, (0, 2)),
        (2, (0, 1, 2**31, 2**32 - 1)),
        (3, (0, 1, 2**40, 2**63, 2**64 - 1)),
        (4, (0, 1, 4, 2**32 - 1)),
    ):
        for value in values:
            yield in_place(
                f"header {field} is {value}", file, lambda content, f, v: _repacked(content, f, v), field, value
            )
    for name, number in (("NaN", float("nan")), ("infinite", float("inf")), ("negative", -5.0), ("huge", 3e38)):
        figure = struct.pack("<f", number)
        yield in_place(
            f"figures {name}", file, lambda content, b: content[:120] + b * ((len(content) - 120) // 4), figure
        )
        yield in_place(f"all {name}", file, lambda content, b: content[:32] + b * ((len(content) - 32) // 4), figure)


def _repacked(content: bytes, field: int, value: int) -> bytes:
    head = list(_PYRAMID.unpack_from(content))
    head[field] = value
    return _PYRAMID.pack(*head) + content[_PYRAMID.size :]


# Parquet.


def parquet_cases(file: str, num_columns: int, bins: int) -> Iterator[Case]:
    """A block with other columns, numbers of rows, types and packing."""
    rows = 10
    float_column = pa.array(np.arange(rows, dtype=np.float32))
    step, time = pa.array(np.arange(rows)), pa.array(np.arange(rows, dtype=np.float64))
    others: dict[str, list[Any]] = {
        "null typed": [step, time, *[pa.nulls(rows)] * num_columns],
        "null steps": [pa.nulls(rows), time, *[float_column] * num_columns],
        "steps with null": [pa.array([None, *range(rows - 1)], pa.int64()), time, *[float_column] * num_columns],
        "text": [step, time, *[pa.array(["x"] * rows)] * num_columns],
        "wide text": [step, time, *[pa.array(["x" * 100_000] * rows)] * num_columns],
        "doubles": [step, time, *[time] * num_columns],
        "half": [step, time, *[float_column.cast(pa.float16())] * num_columns],
        "decimals": [step, time, *[step.cast(pa.decimal128(30, 2))] * num_columns],
        "dictionary": [step, time, *[pa.array(["x"] * rows).dictionary_encode()] * num_columns],
        "structs": [step, time, *[pa.array([{"a": 1, "b": {"c": 2}}] * rows)] * num_columns],
        "lists": [step, time, *[pa.array([[1.0, 2.0]] * rows, pa.list_(pa.float32()))] * num_columns],
        "ragged lists": [
            step,
            time,
            *[pa.array([[1.0] * (i % 4) for i in range(rows)], pa.list_(pa.float32()))] * num_columns,
        ],
        "lists of lists": [
            step,
            time,
            *[pa.array([[[1.0]] * 3] * rows, pa.list_(pa.list_(pa.float32())))] * num_columns,
        ],
        "text steps": [pa.array(["x"] * rows), time, *[float_column] * num_columns],
        "float steps": [time, time, *[float_column] * num_columns],
        "no times": [step, *[float_column] * num_columns],
        "steps only": [step],
        "no columns": [],
        "steps backwards": [pa.array(np.arange(rows)[::-1].copy()), time, *[float_column] * num_columns],
        "steps below zero": [pa.array(np.arange(rows) - 5), time, *[float_column] * num_columns],
        "largest steps": [pa.array(np.full(rows, 2**63 - 1)), time, *[float_column] * num_columns],
        "times not finite": [step, pa.array(np.full(rows, np.nan)), *[float_column] * num_columns],
    }
    for name, arrays in others.items():
        yield _parquet_case(file, name, arrays)
    whole = [step, time, *[float_column] * num_columns]
    if bins > 1:
        whole[2:] = [pa.array([[1.0] * bins] * rows, pa.list_(pa.float32()))] * num_columns
    for packing in ("snappy", "gzip", "brotli", "lz4"):
        yield _parquet_case(file, packing, whole, compression=packing)
    yield _parquet_case(file, "dictionary pages", whole, use_dictionary=True)
    yield _parquet_case(file, "second pages", whole, data_page_version="2.0")
    yield _parquet_case(file, "groups of two", whole, row_group_size=2)
    yield _parquet_case(file, "with statistics", whole, write_statistics=True, store_schema=True)
    yield in_place("footer of 4 GB", file, lambda content: content[:-8] + b"\xff\xff\xff\xff" + b"PAR1")
    yield in_place("footer of -1", file, lambda content: content[:-8] + struct.pack("<i", 2**31 - 1) + b"PAR1")
    yield in_place("no footer", file, lambda content: content[:-8] + b"\0\0\0\0" + b"PAR1")


def _parquet_case(file: str, name: str, arrays: list[Any], **how: Any) -> Case:
    def damage(folder: Path) -> None:
        table = pa.Table.from_arrays(arrays, names=[f"c{i}" for i in range(len(arrays))])
        pq.write_table(table, folder / file, **{"use_dictionary": False, "store_schema": False, **how})

    return Case(f"{file}: {name}", damage)


def make_bomb(path: Path) -> None:
    """Hundreds of megabytes of zeros in some kilobytes."""
    zeros, steps = pa.array(np.zeros(BOMB_ROWS, np.float32)), pa.array(np.arange(BOMB_ROWS))
    table = pa.Table.from_arrays([steps, zeros.cast(pa.float64()), zeros], names=["step", "time", "a"])
    encoding = {"step": "DELTA_BINARY_PACKED", "time": "PLAIN", "a": "PLAIN"}
    pq.write_table(
        table, path, compression="zstd", use_dictionary=False, row_group_size=BOMB_ROWS, column_encoding=encoding
    )


BOMB_ROWS = 1 << 24


def bomb_case(file: str, bomb: Path) -> Case:
    """A block that unpacks to hundreds of megabytes, and a description that agrees."""

    def damage(folder: Path) -> None:
        shutil.copy(bomb, folder / file)
        about = (folder / file).with_name("segment.json")
        about.write_text(json.dumps(json.loads(about.read_text()) | {"rows": BOMB_ROWS, "last_step": BOMB_ROWS - 1}))

    return Case(f"{file}: unpacks to {BOMB_ROWS * 20 >> 20} MB", damage)
