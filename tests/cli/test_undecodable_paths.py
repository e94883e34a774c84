"""Folders and scripts whose names are in no encoding: files may have any bytes in their names but two."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import sonde

Call = Callable[..., "subprocess.CompletedProcess[str]"]
NAME = os.fsdecode(b"r\xff")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run in such a folder, with segments; the working directory is the one above."""
    monkeypatch.chdir(tmp_path)
    with sonde.record(Path("runs") / NAME, config={"data": NAME}) as writer:
        for step in range(1, 1101):
            writer.log({"loss": 1.0 / step}, step=step)
        writer.event("note", step=1, data={"file": NAME})
    return Path("runs") / NAME


def test_such_a_run_is_read_whole(run: Path) -> None:
    loaded = sonde.load(run)
    assert len(loaded.series("loss").step) == 1100
    assert not loaded.problems
    assert loaded.path == run
    assert loaded.events("note")[0].data == {"file": "r\ufffd"}  # JSON is UTF-8
    assert sonde.diagnose(run).steps == 1100
    assert sonde.report(run).save("report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "words",
    [
        ("runs", "runs"),
        ("runs", "runs", "--json"),
        ("show", "RUN"),
        ("show", "RUN", "--json"),
        ("diagnose", "RUN"),
        ("diagnose", "RUN", "--json"),
        ("diagnose", "RUN", "--guide"),
        ("report", "RUN"),
        ("report", "RUN", "--md", "-o", os.fsdecode(b"report\xff.md")),
        ("report", "RUN", "-o", "-"),
        ("export", "RUN", "--to", "csv"),
        ("export", "RUN", "--to", "parquet"),
        ("export", "RUN", "--to", "jsonl"),
        ("compare", "RUN", "RUN"),
        ("compare", "RUN", "RUN", "--json"),
        ("tail", "RUN", "--once"),
        ("calibrate", "RUN"),
    ],
    ids=lambda words: ascii(" ".join(words)),
)
def test_every_command_takes_such_a_run(call: Call, run: Path, words: tuple[str, ...]) -> None:
    outcome = call(*(run if word == "RUN" else word for word in words))
    assert outcome.returncode == 0, outcome.stderr
    outcome.stdout.encode()
    if "--json" in words:
        assert "1100" in json.dumps(json.loads(outcome.stdout))


def test_a_script_of_such_a_name_is_run_and_watched(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script = tmp_path / os.fsdecode(b"train\xff.py")
    script.write_text(
        "import torch\ntorch.set_num_threads(1)\nnet = torch.nn.Linear(2, 1)\n"
        "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "for _ in range(3):\n    net(torch.ones(4, 2)).mean().backward()\n    optimizer.step()\nprint('done')\n"
    )
    command = [sys.executable, "-m", "sonde", "run", script.name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, b"done\n")
    assert "Traceback" not in done.stderr.decode()
    (folder,) = (tmp_path / "runs").iterdir()
    assert sonde.load(folder).steps == 3
