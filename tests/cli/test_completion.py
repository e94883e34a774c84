"""Shells complete the words of `sonde`."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Outcome = subprocess.CompletedProcess[str]
GIVEN = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # the shell is named, since a test has none around it


def completed(spawn: Callable[..., Outcome], words: str) -> list[str]:
    """What bash offers for the last word."""
    asked = {
        "_SONDE_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    outcome = spawn(env=asked)
    assert (outcome.returncode, outcome.stderr) == (0, "")
    return outcome.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("sonde exp", ["explain", "export"]),
        ("sonde zzz", []),
        ("sonde export --t", ["--to", "--tags"]),
        ("sonde export runs/x --to ", ["parquet", "csv", "jsonl"]),
        ("sonde import ten", ["tensorboard"]),
    ],
)
def test_commands_options_and_values_are_completed(
    spawn: Callable[..., Outcome], words: str, offered: list[str]
) -> None:
    assert completed(spawn, words) == offered


def test_all_commands_are_offered(spawn: Callable[..., Outcome]) -> None:
    from sonde.cli.commands import COMMANDS

    assert completed(spawn, "sonde ") == list(COMMANDS.names())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_is_printed(spawn: Callable[..., Outcome], shell: str) -> None:
    outcome = spawn("--show-completion", shell, env=GIVEN)
    assert outcome.returncode == 0, outcome.stderr
    assert "_SONDE_COMPLETE" in outcome.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_itself_completes_with_that_script(spawn: Callable[..., Outcome], tmp_path: Path) -> None:
    program = tmp_path / "sonde"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m sonde "$@"\n')
    program.chmod(0o755)
    script = spawn("--show-completion", "bash", env=GIVEN).stdout
    asked = f'{script}\nCOMP_WORDS=(sonde diag)\nCOMP_CWORD=1\n_sonde_completion sonde\necho "${{COMPREPLY[@]}}"\n'
    search = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", asked], capture_output=True, text=True, check=True, env={**os.environ, "PATH": search}
    )
    assert done.stdout == "diagnose\n"


def test_it_is_installed_where_the_shell_looks(spawn: Callable[..., Outcome], tmp_path: Path) -> None:
    outcome = spawn("--install-completion", "bash", env={**GIVEN, "HOME": str(tmp_path)})
    assert outcome.returncode == 0, outcome.stderr
    assert "installed" in outcome.stdout
    assert any("sonde" in path.read_text() for path in tmp_path.rglob("*") if path.is_file())
