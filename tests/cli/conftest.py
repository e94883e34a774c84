"""The program as the tests call it, and a run for it to read."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import sonde
from sonde.cli.main import main

Outcome = subprocess.CompletedProcess[str]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Calls `sonde` in this process."""

    def run(*args: object) -> Outcome:
        words = [str(word) for word in args]
        status = main(words)
        captured = capsys.readouterr()
        return Outcome(words, status, captured.out, captured.err)

    return run


@pytest.fixture
def spawn() -> Callable[..., Outcome]:
    """Calls `sonde` in a process of its own, as a shell does."""

    def run(*args: object, env: dict[str, str] | None = None) -> Outcome:
        command = [sys.executable, "-m", "sonde", *map(str, args)]
        return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(env or {})}, check=False)

    return run


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder with one finished run, `healthy`, and one whose loss became NaN, `broken`."""
    folder = tmp_path / "runs"
    with sonde.record(folder / "healthy", config={"lr": 0.1, "model": {"width": 8}}) as writer:
        for step in range(1, 101):
            writer.log({"loss": 4.0 / step, "lr": 0.1, "grad/norm": 1.0, "grad/norm@layer.weight": 0.5}, step=step)
        writer.event("note", step=40, data={"text": "halved the batch"})
    with sonde.record(folder / "broken") as writer:
        for step in range(1, 101):
            writer.log({"loss": float("nan") if step > 60 else 1.0}, step=step)
    return folder
