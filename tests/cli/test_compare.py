import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sonde.core import strict_json

Call = Callable[..., subprocess.CompletedProcess[str]]


def test_two_runs_are_compared_in_words(call: Call, runs: Path) -> None:
    outcome = call("compare", runs / "healthy", runs / "broken")
    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert outcome.stdout.startswith(f"healthy  {runs / 'healthy'}  (reference)\nbroken  {runs / 'broken'}\n")
    assert "loss by step\n  broken  separates at step" in outcome.stdout
    assert "different from the start; first loss at step 1: 4 → 1" in outcome.stdout
    assert "step 61" in outcome.stdout


def test_json_is_one_strict_object(call: Call, runs: Path) -> None:
    shown = strict_json.loads(call("compare", runs / "healthy", runs / "broken", "--json").stdout)
    assert shown["schema"] == 1
    assert {setting["key"]: setting["values"] for setting in shown["settings"]} == {
        "config.lr": [0.1, None],
        "config.model.width": [8, None],
    }
    assert shown["runs"][1]["health"]["lost_step"] == 61


def test_pictures_are_written_beside_the_outcome(call: Call, runs: Path, tmp_path: Path) -> None:
    svg, html = tmp_path / "o.svg", tmp_path / "o.html"
    outcome = call(
        "compare", runs / "healthy", runs / "broken", runs / "healthy", "--svg", svg, "--html", html, "--json"
    )
    assert outcome.returncode == 0
    strict_json.loads(outcome.stdout)
    assert outcome.stderr == f"sonde: wrote {svg}\nsonde: wrote {html}\n"
    assert svg.read_text(encoding="utf-8").startswith("<svg ")
    curves = re.findall(' d="M[^"]*"', svg.read_text(encoding="utf-8"))
    assert len(curves) > 10
    assert html.read_text(encoding="utf-8").count("<svg ") == 2


def test_another_series_and_axis_can_be_asked_for(call: Call, runs: Path) -> None:
    outcome = call("compare", runs / "healthy", runs / "broken", "--tag", "grad/norm", "--by", "time")
    assert "grad/norm by time\n  broken  the runs have no common points" in outcome.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("healthy",), "nothing to compare"),
        (("healthy", "nowhere"), "nowhere"),
        (("healthy", "broken", "--tag", "lsos"), "no series 'lsos'"),
        (("healthy", "broken", "--by", "samples"), "how many samples"),
        (("healthy", "broken", "--by", "epochs"), "epochs"),
        (("healthy", "broken", "--tolerance", "-1"), "greater than or equal to 0"),
        (("healthy", "broken", "--tolerance", "nan"), "greater than or equal to 0"),
        (("healthy", "broken", "--svg", "nowhere/o.svg"), "does not exist"),
        (("healthy", "broken", "--html", "healthy"), "is a folder"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    call: Call, runs: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(runs)
    outcome = call("compare", *words)
    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert said in outcome.stderr
    assert len(outcome.stderr.splitlines()) == 1


def test_torch_is_not_needed(spawn: Call, runs: Path, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('there is no torch here')")
    outcome = spawn("compare", runs / "healthy", runs / "broken", env={"PYTHONPATH": str(tmp_path)})
    assert outcome.returncode == 0, outcome.stderr
