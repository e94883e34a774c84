import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import sonde
from sonde.core import strict_json

Call = Callable[..., subprocess.CompletedProcess[str]]


def _spiky(folder: Path) -> Path:
    with sonde.record(folder) as writer:
        for step in range(1, 301):
            wiggle = 0.01 * ((step * 7919) % 13)
            writer.log(step, {"loss": 2 / (1 + step / 50) + wiggle + (8.0 if step == 250 else 0.0), "lr": 1e-3})
    return folder


def test_a_healthy_run_is_called_healthy_and_exits_with_0(call: Call, runs: Path) -> None:
    outcome = call("diagnose", runs / "healthy")
    assert outcome.returncode == 0
    assert outcome.stdout.startswith(f"{runs / 'healthy'}: ")


def test_a_finding_is_printed_and_exits_with_1(call: Call, tmp_path: Path) -> None:
    outcome = call("diagnose", _spiky(tmp_path / "run"))
    assert outcome.returncode == 1
    assert "LOS002 loss-spike  critical  step" in outcome.stdout
    assert "more: sonde explain LOS002" in outcome.stdout


def test_json_is_the_documented_object(call: Call, tmp_path: Path) -> None:
    outcome = call("diagnose", _spiky(tmp_path / "run"), "--json")
    shown = strict_json.loads(outcome.stdout)
    assert (outcome.returncode, shown["schema"], shown["verdict"], shown["steps"]) == (1, 1, "critical", 300)
    (spike,) = [finding for finding in shown["findings"] if finding["code"] == "LOS002"]
    assert spike["first_step"] == 250
    assert spike["evidence"][0]["tag"] == "loss"


def test_what_is_no_run_is_refused_with_2(call: Call, tmp_path: Path) -> None:
    outcome = call("diagnose", tmp_path / "nothing")
    assert outcome.returncode == 2
    assert "Traceback" not in outcome.stderr


def test_rules_are_set_by_the_profile_then_the_run_then_the_working_directory(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spike that one setting hides and another shows."""
    run, here = _spiky(tmp_path / "run"), tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    (here / "sonde.toml").write_text("[rules]\nLOS002 = false\n")
    assert "LOS002" not in call("diagnose", run, "--json").stdout
    info = strict_json.loads((run / "run.json").read_text())
    info["settings"] = {"rules.LOS002": {"value": True, "from": "argument"}, "rules.XYZ999": {"value": 1, "from": "x"}}
    (run / "run.json").write_text(strict_json.dumps(info))
    assert "LOS002" in call("diagnose", run, "--json").stdout
    (here / "rules.toml").write_text("LOS002 = false\n")
    assert "LOS002" not in call("diagnose", run, "--json", "--profile", here / "rules.toml").stdout


def test_a_configuration_that_is_wrong_is_refused_with_2(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sonde.toml").write_text("[rules]\nloss-spke = false\n")
    outcome = call("diagnose", _spiky(tmp_path / "run"))
    assert outcome.returncode == 2
    assert "did you mean `loss-spike`?" in outcome.stderr
    assert "Traceback" not in outcome.stderr
