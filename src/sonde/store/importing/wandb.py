"""A folder of Weights & Biases as a log, read without its package.

The file `run-ID.wandb`, which online and offline runs leave behind alike, is a log of LevelDB's form: after seven bytes
of header, blocks of 32 KiB with pieces of records, each with a CRC-32, a length and a kind. A record is a protocol
buffer.
"""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from sonde.core import strict_json
from sonde.core.errors import FormatError, RunNotFound
from sonde.store import opening
from sonde.store.environment import PACKAGES
from sonde.store.importing import wire
from sonde.store.importing.foreign import Log, Logged, moment, number
from sonde.store.importing.foreign import step as whole

_HEADER = struct.Struct("<4sHB")
_PIECE = struct.Struct("<IHB")
_BLOCK_BYTES = 32 * 1024
_LARGEST_BYTES = 16 << 20
_MOST_BYTES = 1 << 40  # of a history, which is read line by line
_WHOLE, _FIRST, _LAST = 1, 2, 4  # 3 is in the middle

# wandb/proto/wandb_internal.proto
_HISTORY, _CONFIG, _RUN = 2, 5, 17
_ITEM, _HISTORY_STEP, _UPDATE, _RUN_CONFIG = 1, 2, 1, 4
_KEY, _NESTED_KEY, _VALUE_JSON = 1, 2, 16
# These count updates; `_step` counts calls of `wandb.log`.
_UPDATES = ("trainer/global_step", "train/global_step", "global_step")
_OWN = frozenset({"_step", "_runtime", "_timestamp", "_wandb"})


def read(source: str, run: str | None = None) -> Log:
    """The history of a run and its configuration.

    Where a framework logged its own step (`trainer/global_step`, `train/global_step`, `global_step`), that is the step;
    rows without it belong to the last one. Otherwise it is W&B's. Pictures, tables and histograms are left out.

    Args:
        source: The folder `wandb`, that of one run, or a file `run-ID.wandb` or `wandb-history.jsonl`.
        run: Which of several: its ID, or the name of its folder.

    Raises:
        RunNotFound: there is no run, or there are several and none was chosen.
        FormatError: the file is damaged (while its entries are read).
    """
    root = Path(source)
    if not root.exists():
        raise RunNotFound(f"{root} does not exist; name the folder 'wandb' of the training, or one of its runs.")
    files = [root] if root.is_file() else _files(root)
    if run is not None:
        files = [file for file in files if run in (_id(file), _folder(file).name)]
        if not files:
            raise RunNotFound(f"{root} has no run {run!r}.")
    if not files:
        raise RunNotFound(f"{root} holds no run of W&B: no run-ID.wandb and no wandb-history.jsonl.")
    if len(files) > 1:
        names = ", ".join(_id(file) for file in files[:8]) + (f" and {len(files) - 8} more" if len(files) > 8 else "")
        raise RunNotFound(f"{root} holds {len(files)} runs; choose one with --run: {names}")
    file = files[0]
    config: dict[str, Any] = {}
    rows = _history_lines(root, file) if file.suffix == ".jsonl" else _records(root, file, config)
    return Log(
        name=_id(file),
        entries=_entries(rows),
        config=config,
        environment=_environment(_folder(file) / "files"),
        time=file.stat().st_mtime,
    )


def _environment(files: Path) -> dict[str, Any]:
    """What `wandb-metadata.json` and `requirements.txt` say; nothing where they are not there, or not readable."""
    try:
        content = strict_json.loads(_beside(files / "wandb-metadata.json"), bare=True)
    except FormatError:
        content = None
    said: dict[str, Any] = content if isinstance(content, dict) else {}
    git, program, words = said.get("git"), said.get("program"), said.get("args")
    command = [program, *(words if isinstance(words, list) else ())] if isinstance(program, str) else []
    found = {
        "python": _word(said.get("python")),
        "platform": _word(said.get("os")),
        "host": _word(said.get("host")),
        "cpus": whole(said.get("cpu_count")),
        "gpu": _word(said.get("gpu")),
        "packages": _packages(files / "requirements.txt"),
        "command": [str(word) for word in command],
        "commit": _word(git.get("commit")) if isinstance(git, dict) else None,
    }
    return {name: value for name, value in found.items() if value}


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _packages(file: Path) -> dict[str, str]:
    pairs = (line.strip().partition("==")[::2] for line in _beside(file).decode(errors="replace").splitlines())
    return {name: version for name, version in pairs if name in PACKAGES and version}


def _beside(file: Path) -> bytes:
    """A small file in a run's folder `files`, empty where it cannot be read."""
    try:
        return opening.read_bytes(file, depth=2, limit=_LARGEST_BYTES)
    except (OSError, FormatError):
        return b""


def _files(root: Path) -> list[Path]:
    """The file of each run; the old `wandb-history.jsonl` only where there is no other."""
    by_folder: dict[Path, Path] = {}
    for pattern in ("wandb-history.jsonl", "run-*.wandb"):
        for file in opening.files(root, pattern):  # not through the link `latest-run`
            by_folder[_folder(file)] = file
    return list(by_folder.values())


def _folder(file: Path) -> Path:
    return file.parent.parent if file.parent.name == "files" else file.parent


def _id(file: Path) -> str:
    if file.suffix == ".wandb":
        return file.stem.removeprefix("run-")
    return _folder(file).name.rpartition("-")[2] or file.stem


def _entries(rows: Iterator[dict[str, Any]]) -> Iterator[Logged]:
    updates: int | None = None
    for count, row in enumerate(rows):
        for name in _UPDATES:
            said = whole(row.get(name))
            if said is not None:
                updates = said
                break
        called = whole(row.get("_step"))
        step = updates if updates is not None else count if called is None else called
        time = moment(row.get("_timestamp"))
        for name, given in row.items():
            value = number(given) if name not in _OWN and name not in _UPDATES else None
            if value is not None:
                yield Logged(name, step, value, time)


def _history_lines(root: Path, file: Path) -> Iterator[dict[str, Any]]:
    with opening.reading_below(root, file) as opened:
        for line in opening.lines_of(opened, longest=_LARGEST_BYTES, limit=_MOST_BYTES):
            text = (line or b"a line that is too long\n").decode(errors="replace")
            try:
                row = strict_json.loads(text, bare=True)
            except FormatError:
                if not text.endswith("\n"):
                    return  # torn
                raise FormatError(f"{file} has a line that is not JSON: {text[:60]!r}.") from None
            if isinstance(row, dict):
                yield _flat(row)


def _records(root: Path, file: Path, config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    with opening.reading_below(root, file) as opened:
        for record in _framed(opened, file):
            for kind, content in wire.fields(record):
                if not isinstance(content, bytes):
                    continue
                if kind == _HISTORY:
                    yield _row(content)
                elif kind == _CONFIG:
                    _configure(config, content)
                elif kind == _RUN:
                    for said in wire.members(content, _RUN_CONFIG):
                        _configure(config, said)


def _row(history: bytes) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for item in wire.members(history, _ITEM):
        row[".".join(_key(item))] = _json(item)
    step = wire.member(history, _HISTORY_STEP)
    if step is not None:
        row.setdefault("_step", wire.whole(step, 1))
    return _flat(row)


def _configure(config: dict[str, Any], said: bytes) -> None:
    for item in wire.members(said, _UPDATE):
        *path, last = _key(item) or [""]
        if path[:1] == ["_wandb"] or last == "_wandb":
            continue  # about W&B itself
        place = config
        for word in path:
            inner = place.setdefault(word, {})
            place = inner if isinstance(inner, dict) else place
        place[last] = _json(item)


def _key(item: bytes) -> list[str]:
    nested = [word.decode("utf-8", errors="replace") for word in wire.members(item, _NESTED_KEY)]
    return nested or [wire.text(item, _KEY)]


def _json(item: bytes) -> Any:
    try:
        return strict_json.loads(wire.member(item, _VALUE_JSON) or b"null", bare=True)
    except FormatError:
        return None


def _flat(row: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values by dotted names; what W&B marks with `_type` (histograms, pictures) is left out."""
    found: dict[str, Any] = {}
    for key, value in row.items():
        if not isinstance(value, dict):
            found[prefix + key] = value
        elif "_type" not in value:
            found.update(_flat(value, f"{prefix}{key}."))
    return found


def _framed(file: BinaryIO, path: Path) -> Iterator[bytes]:
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size or _HEADER.unpack(header)[:2] != (b":W&B", 0xBEE1):
        raise FormatError(f"{path} does not begin as a file of W&B does.")
    at, record = _HEADER.size, bytearray()
    while True:
        room = _BLOCK_BYTES - at % _BLOCK_BYTES
        if room < _PIECE.size:  # the rest of a block is filled up
            file.read(room)
            at += room
            continue
        head = file.read(_PIECE.size)
        if len(head) < _PIECE.size:
            return
        check, length, kind = _PIECE.unpack(head)
        content = file.read(length)
        if len(content) < length:
            return  # torn
        if zlib.crc32(content, zlib.crc32(head[6:])) != check:
            if not file.read(1):
                return
            raise FormatError(f"{path} is damaged at byte {at}; copy it again.")
        at += _PIECE.size + length
        if kind in (_WHOLE, _FIRST):
            record.clear()
        if len(record) + length > _LARGEST_BYTES:
            raise FormatError(f"{path} has a record of more than {_LARGEST_BYTES >> 20} MiB at byte {at}.")
        record += content
        if kind in (_WHOLE, _LAST):
            yield bytes(record)
            record.clear()
