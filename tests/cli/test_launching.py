"""`sonde run` by its short way past the command."""

import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sonde.cli import program
from sonde.cli.launching import launch_plain

Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a script and a folder in it."""
    (tmp_path / "train.py").write_text("import sys; print(sys.argv)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SONDE_RUN", raising=False)
    return tmp_path


def wanted(go: Any) -> Any:
    return inspect.getclosurevars(go).nonlocals["wanted"]


@pytest.mark.parametrize("environment", [{}, {"SONDE_RUN": "runs/said"}, {"SONDE_RUN": ""}])
@pytest.mark.parametrize(
    "words",
    [
        ["train.py"],
        ["train.py", "--lr", "3e-4", "--run", "its own", "--", "-m", "--help"],
        ["--run", "runs/first", "train.py", "a b", ""],
        ["--run-dir=runs/a=b", "--budget", "0.05", "--console=quiet", "train.py"],
        ["--budget", "0.5", "--budget=0.25", "--console", "lines", "./train.py", "-x"],
        ["-m", "json.tool", "--indent", "2"],
        ["--run", "r", "-m", "json"],
    ],
)
def test_plain_words_mean_what_the_command_takes_them_for(
    words: list[str], environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    plain = wanted(launch_plain(words))
    asked = wanted(program.run(["run", *words]))
    assert (plain.target, plain.args, plain.is_module, plain.run) == (
        asked.target,
        asked.args,
        asked.is_module,
        asked.run,
    )
    assert plain.settings.to_json() == asked.settings.to_json()


@pytest.mark.parametrize(
    "words",
    [
        [],
        [""],
        ["-h"],
        ["--help"],
        ["--run"],
        ["--run", "r"],
        ["--run=", "train.py"],
        ["--run", "--budget", "train.py"],
        ["--budget", "much", "train.py"],
        ["--console", "loud", "train.py"],
        ["--bugdet", "0.1", "train.py"],
        ["-mjson"],
        ["--", "train.py"],
    ],
)
def test_other_words_are_left_to_the_command(words: list[str]) -> None:
    assert launch_plain(words) is None


def test_a_script_does_not_wait_for_what_reads_the_words_of_commands(folder: Path) -> None:
    code = (
        "import sys\nfrom sonde.cli.main import main\nmain(['run', 'train.py', 'x'])\nprint('typer' in sys.modules)\n"
    )
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert outcome.stdout == "['train.py', 'x']\nFalse\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "trian.py"], "there is no file trian.py"),
        (["run", "-m", "no_such_module"], "there is no module no_such_module"),
        (["run", "--budget", "7", "train.py"], "budget"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(call: Call, words: list[str], said: str) -> None:
    outcome = call(*words)
    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith("sonde: ")
    assert outcome.stderr.count("\n") == 1
    assert said in outcome.stderr
