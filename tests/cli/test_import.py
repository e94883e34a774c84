import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import sonde
from sonde.cli.import_ import import_
from sonde.store.importing.imports import READERS

Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    file = tmp_path / "history.csv"
    file.write_text("step,my loss,mood\n1,2.5,7\n2,1.5,8\n", encoding="utf-8")
    return file


def test_the_command_offers_every_reader() -> None:
    assert get_args(get_type_hints(import_)["kind"]) == tuple(READERS)


def test_the_run_is_named_after_the_log_and_what_became_of_each_series_is_printed(
    call: Call, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = call("import", "csv", "history.csv", "--map", "my loss=loss")
    assert outcome.returncode == 0
    assert outcome.stdout == ("runs/history: 2 steps, 2 series\n  my loss → loss\n  kept, meaning unknown: mood\n")
    assert outcome.stderr == "sonde: look at it with: sonde diagnose runs/history\n"
    assert sonde.load("runs/history").series("loss").value.tolist() == [2.5, 1.5]
    assert call("diagnose", "runs/history").returncode == 0


def test_a_loss_that_is_not_recognised_is_said(call: Call, log: Path, tmp_path: Path) -> None:
    outcome = call("import", "csv", log, "--out", tmp_path / "run", "--map", "my loss=other")
    assert "--map THEIRS=loss" in outcome.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("csv", "none.csv"), "does not exist"),
        (("csv", "LOG", "--map", "loss"), "THEIRS=OURS"),
        (("csv", "LOG", "--map", "a=b", "--map", "a=c"), "twice"),
        (("csv", "LOG", "--map", "my loss=no tag"), "no tag"),
        (("csv", "LOG", "--map", "nothing=loss"), "'my loss'"),
        (("csv", "LOG", "--run", "a"), "--run"),
        (("excel", "LOG"), "excel"),
        (("tensorboard", "LOG"), "event file"),
        (("mlflow", "http://localhost:1"), "server"),
    ],
)
def test_what_is_wrong_is_one_line_and_status_2(
    call: Call, log: Path, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    outcome = call("import", *(str(log) if word == "LOG" else word for word in words), "--out", tmp_path / "run")
    assert (outcome.returncode, outcome.stdout, outcome.stderr.count("\n")) == (2, "", 1)
    assert said in outcome.stderr
    assert not (tmp_path / "run").exists()


def test_importing_needs_no_torch(spawn: Call, log: Path, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise RuntimeError('torch was imported')", encoding="utf-8")
    outcome = spawn("import", "csv", log, "--out", tmp_path / "run", env={"PYTHONPATH": str(tmp_path)})
    assert outcome.returncode == 0, outcome.stderr


def test_an_imported_run_shows_the_time_that_its_log_says_and_nothing_of_this_machine(
    call: Call, tmp_path: Path
) -> None:
    timed, untimed = tmp_path / "timed.csv", tmp_path / "untimed.csv"
    timed.write_text("step,loss,timestamp\n0,3.5,1700000000\n1,2.5,1700000060\n")
    untimed.write_text("step,loss\n0,3.5\n1,2.5\n")
    for log in (timed, untimed):
        assert call("import", "csv", str(log), "--out", str(log.with_suffix(""))).returncode == 0
    first, second = (call("show", str(log.with_suffix(""))).stdout for log in (timed, untimed))
    assert "1 step in 1 min · 2023-11-14" in first
    assert " in " not in second.splitlines()[1]
    assert "environment" not in first + second
