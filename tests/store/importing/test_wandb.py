"""The golden folder was written by wandb 0.31.0, offline."""

import json
import math
import shutil
import struct
import zlib
from pathlib import Path

import pytest

import sonde
from sonde.core.errors import FormatError, RunNotFound
from sonde.store.importing.foreign import Logged
from sonde.store.importing.imports import import_logs
from sonde.store.importing.wandb import read

GOLDEN = Path(__file__).parents[2] / "golden" / "wandb"
FILE = next(GOLDEN.rglob("*.wandb"))


def points(run: sonde.Run, tag: str) -> dict[int, float]:
    series = run.series(tag)
    return dict(zip(series.step.tolist(), series.value.tolist(), strict=True))


@pytest.mark.parametrize("source", [GOLDEN, FILE.parent, FILE])
def test_the_history_and_configuration_of_an_offline_run_are_read(source: Path, tmp_path: Path) -> None:
    run = sonde.load(import_logs("wandb", source, tmp_path / "run").path)
    losses = points(run, "loss")
    assert math.isnan(losses.pop(10))
    assert losses == {step: pytest.approx(3 / (step + 1)) for step in range(12) if step != 10}
    assert points(run, "val/loss") == {3 * epoch + 2: pytest.approx(3.2 / (epoch + 1)) for epoch in range(4)}
    assert points(run, "epoch") == {3: 1, 6: 2, 9: 3}
    assert points(run, "nested.a.b") == {step: step % 3 for step in range(12)}
    assert run.info["config"] == {"lr": 0.1, "model": {"width": 8}, "name": "x"}
    assert run.series("lr").time[0] > 1.7e9


def test_every_torn_tail_is_read_up_to_its_last_whole_record(tmp_path: Path) -> None:
    whole = FILE.read_bytes()
    counts = []
    torn = tmp_path / "run-torn.wandb"
    for end in (*range(1000, len(whole), 17), len(whole)):
        torn.write_bytes(whole[:end])
        counts.append(len({entry.step for entry in read(str(torn)).entries if isinstance(entry, Logged)}))
    assert sorted(counts) == counts
    assert counts[0] < counts[-1] == 12


def test_records_that_span_blocks_are_put_together(tmp_path: Path) -> None:
    """Records as LevelDB frames them, of histories whose texts are longer than a block."""
    content = bytearray(struct.pack("<4sHB", b":W&B", 0xBEE1, 0))
    for step in range(4):
        _frame(content, _field(2, _row(step, {"loss": step, "note": "x" * 40_000})))
    file = tmp_path / "run-abc.wandb"
    file.write_bytes(content)
    run = sonde.load(import_logs("wandb", file, tmp_path / "run").path)
    assert points(run, "loss") == {0: 0, 1: 1, 2: 2, 3: 3}


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    content = bytearray(FILE.read_bytes())
    content[1000] ^= 0xFF
    (tmp_path / "run-x.wandb").write_bytes(content)
    with pytest.raises(FormatError, match="damaged"):
        import_logs("wandb", tmp_path / "run-x.wandb", tmp_path / "run")
    (tmp_path / "run-y.wandb").write_bytes(b"something else")
    with pytest.raises(FormatError, match="W&B"):
        import_logs("wandb", tmp_path / "run-y.wandb", tmp_path / "run")


def test_of_several_runs_one_must_be_chosen(tmp_path: Path) -> None:
    for name in ("aaa", "bbb"):
        folder = tmp_path / "wandb" / f"run-20260101_000000-{name}"
        folder.mkdir(parents=True)
        shutil.copy(FILE, folder / f"run-{name}.wandb")
    (tmp_path / "wandb" / "latest-run").symlink_to(folder)
    with pytest.raises(RunNotFound, match="--run: aaa, bbb"):
        import_logs("wandb", tmp_path / "wandb", tmp_path / "run")
    with pytest.raises(RunNotFound, match="'ccc'"):
        import_logs("wandb", tmp_path / "wandb", tmp_path / "run", run="ccc")
    assert import_logs("wandb", tmp_path / "wandb", tmp_path / "run", run="bbb").steps == 12


def test_the_frameworks_own_step_comes_before_that_of_the_logger(tmp_path: Path) -> None:
    rows = [
        {"_step": 0, "train/loss": 2.0, "train/global_step": 50},
        {"_step": 1, "eval/loss": 2.5, "train/global_step": 50},
        {"_step": 2, "note": 7},
        {"_step": 3, "train/loss": 1.0, "train/global_step": 100, "picture": {"_type": "image-file", "width": 3}},
    ]
    file = tmp_path / "wandb-history.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"_step": 4, "train/lo', encoding="utf-8")
    run = sonde.load(import_logs("wandb", file, tmp_path / "run").path)
    assert points(run, "loss") == {50: 2.0, 100: 1.0}
    assert points(run, "val/loss") == {50: 2.5}
    assert points(run, "note") == {50: 7}
    assert run.tags() == ["loss", "note", "val/loss"]


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _row(step: int, items: dict[str, object]) -> bytes:
    said = b"".join(_field(1, _field(1, key.encode()) + _field(16, json.dumps(items[key]).encode())) for key in items)
    return said + _field(2, b"\x08" + _varint(step))


def _frame(content: bytearray, record: bytes) -> None:
    kinds = {(True, True): 1, (True, False): 2, (False, False): 3, (False, True): 4}
    first = True
    while record or first:
        room = 32768 - len(content) % 32768
        if room < 7:
            content += bytes(room)
            continue
        piece, record = record[: room - 7], record[room - 7 :]
        kind = bytes([kinds[first, not record]])
        content += struct.pack("<IH", zlib.crc32(kind + piece), len(piece)) + kind + piece
        first = False


def test_the_environment_is_what_the_log_says(tmp_path: Path) -> None:
    shutil.copytree(FILE.parent, tmp_path / "log")
    files = tmp_path / "log" / "files"
    files.mkdir(exist_ok=True)
    said = {
        "python": "CPython 3.12.1",
        "os": "Linux-6.1",
        "host": "node7",
        "program": "train.py",
        "git": {"commit": "abc"},
    }
    (files / "wandb-metadata.json").write_text(json.dumps({**said, "args": ["--api-key", "hush"], "email": "a@b.c"}))
    (files / "requirements.txt").write_text("torch==2.1.0\nsomething==1.0\nnumpy==1.26.4\n")
    environment = sonde.load(import_logs("wandb", tmp_path / "log", tmp_path / "run").path).info["environment"]
    assert environment == {
        "python": "CPython 3.12.1",
        "platform": "Linux-6.1",
        "host": "node7",
        "packages": {"torch": "2.1.0", "numpy": "1.26.4"},
        "command": ["train.py", "--api-key", "•••"],
        "commit": "abc",
    }
    bare = import_logs("wandb", FILE, tmp_path / "bare")
    assert sonde.load(bare.path).info["environment"].get("packages", {}) == {}
