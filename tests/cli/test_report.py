import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Call = Callable[..., subprocess.CompletedProcess[str]]


def test_without_options_a_page_is_written_here_and_its_path_printed(
    call: Call, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = call("report", runs / "healthy")
    assert (outcome.returncode, outcome.stdout) == (0, "healthy.html\n")
    assert outcome.stderr == "sonde: The training is healthy, with notes.\n"
    assert (tmp_path / "healthy.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_the_ending_of_the_file_says_the_form_unless_an_option_does(call: Call, runs: Path, tmp_path: Path) -> None:
    call("report", runs / "healthy", "-o", tmp_path / "a.md")
    call("report", runs / "healthy", "--md", "-o", tmp_path / "b.txt")
    call("report", runs / "healthy", "--html", "-o", tmp_path / "c.md")
    starts = {file: (tmp_path / file).read_text(encoding="utf-8")[:9] for file in ("a.md", "b.txt", "c.md")}
    assert starts == {"a.md": "# Trainin", "b.txt": "# Trainin", "c.md": "<!DOCTYPE"}


def test_a_dash_prints_the_report(call: Call, runs: Path) -> None:
    outcome = call("report", runs / "broken", "--md", "-o", "-")
    assert outcome.returncode == 0
    assert "NaN or infinite" in outcome.stdout
    assert outcome.stderr == ""


def test_a_target_is_told_in_the_forecast(call: Call, runs: Path) -> None:
    assert "target" in call("report", runs / "healthy", "--md", "-o", "-", "--target", "0.01").stdout


@pytest.mark.parametrize(
    "words",
    [("--html", "--md"), ("-o", "missing/file.html"), ("-o", "."), ("--target", "nan"), ("--target", "low")],
    ids=" ".join,
)
def test_wrong_usage_is_one_line_and_status_2(
    call: Call, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = call("report", runs / "healthy", *words)
    assert (outcome.returncode, outcome.stdout, outcome.stderr.count("\n")) == (2, "", 1)
    assert list(tmp_path.glob("*.html")) == []


def test_what_is_no_run_is_refused_with_2(call: Call, tmp_path: Path) -> None:
    outcome = call("report", tmp_path / "nothing")
    assert outcome.returncode == 2
    assert "Traceback" not in outcome.stderr
