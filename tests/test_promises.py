"""What the README promises: each promise has a test that tries to break it, named in docs/explanation/promises.md."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sonde

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "explanation" / "promises.md").read_text(encoding="utf-8")
ROWS = re.findall(r'^\| "(.+)" \| (.+) \|$', PAGE, flags=re.MULTILINE)


def plain(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(("promise", "kept_by"), ROWS)
def test_every_promise_is_in_the_readme_and_its_tests_are_there(promise: str, kept_by: str) -> None:
    assert plain(promise) in plain(README)
    named = re.findall(r"`([^`]+)`", kept_by)
    assert named or "measured" in kept_by
    for name in named:
        file, _, test = name.partition("::")
        path = ROOT / file
        assert path.exists(), file
        if test:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            assert test in {part.name for part in tree.body if isinstance(part, ast.FunctionDef)}, name


def test_what_the_readme_says_of_itself_is_in_the_table() -> None:
    """The two paragraphs of promises and the list of what is recorded: no sentence of them without a row."""
    promised = re.findall(r"^What it promises .*?(?=\n\n)", README, flags=re.MULTILINE | re.DOTALL)
    assert len(promised) == 2
    for paragraph in promised:
        for sentence in re.split(r"[;.:] ", plain(paragraph).rstrip(".")):
            is_title = sentence.startswith(("What it promises", "a run is a folder"))
            assert is_title or any(plain(row) in sentence or sentence in plain(row) for row, _ in ROWS), sentence


# Installed where every process of the training starts, its doctor among them.
AUDIT = """
import os, sys
def note(event, args):
    if event == "socket.connect" and args[0].family.name != "AF_UNIX" or event == "socket.getaddrinfo":
        with open(os.environ["NOTED"], "a") as file:
            print(os.getpid(), event, args, file=file)
sys.addaudithook(note)
with open(os.environ["STARTED"], "a") as file:
    print(" ".join(sys.orig_argv), file=file)
"""

TRAINING = """
import torch, sonde
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e30)
with sonde.watch(model, optimizer, run="run") as watch:
    for _ in range(30):
        loss = model(torch.ones(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        watch.step(loss)
"""


def test_nothing_leaves_the_machine(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(AUDIT, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SONDE_")}
    environment |= {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(tmp_path), environment.get("PYTHONPATH")])),
        "NOTED": str(tmp_path / "noted"),
        "STARTED": str(tmp_path / "started"),
    }
    subprocess.run([sys.executable, "-c", TRAINING], cwd=tmp_path, env=environment, check=True, capture_output=True)
    assert "sonde.monitor.doctor.process" in (tmp_path / "started").read_text(encoding="utf-8")
    assert not (tmp_path / "noted").exists()
    assert sonde.load(tmp_path / "run").events("finding")  # there was something to tell


def test_polars_and_duckdb_open_a_run(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    polars = pytest.importorskip("polars")
    losses = [1.0, float("nan"), 0.25]
    with sonde.record(tmp_path / "run") as run:
        for step, loss in enumerate(losses):
            run.log({"loss": loss}, step=step)
    pattern = str(tmp_path / "run/tables/*/b0/seg-*/*.parquet")
    rows = duckdb.sql(f"SELECT step, loss FROM '{pattern}' ORDER BY step").fetchall()
    assert str(rows) == str(list(enumerate(losses)))
    frame = polars.read_parquet(pattern).sort("step")
    assert str(frame.select("step", "loss").rows()) == str(list(enumerate(losses)))
