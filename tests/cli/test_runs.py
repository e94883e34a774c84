import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import sonde
from sonde.core import strict_json

Call = Callable[..., subprocess.CompletedProcess[str]]


def test_each_run_has_a_line_with_steps_loss_and_state(call: Call, runs: Path) -> None:
    lines = call("runs", runs).stdout.splitlines()
    assert lines[0].split() == ["run", "steps", "loss", "state", "findings", "updated"]
    words = {line.split()[0]: line.split()[1:4] for line in lines[1:]}
    assert words == {"healthy": ["100", "0.04", "finished"], "broken": ["100", "NaN", "finished"]}


def test_json_is_strict_and_complete(call: Call, runs: Path) -> None:
    listing = strict_json.loads(call("runs", runs, "--json").stdout)
    assert (listing["schema"], listing["folder"]) == (1, str(runs))
    by_name = {run["name"]: run for run in listing["runs"]}
    assert set(by_name) == {"healthy", "broken"}
    healthy = by_name["healthy"]
    assert healthy["path"] == str(runs / "healthy")
    assert (healthy["state"], healthy["steps"], healthy["findings"]) == ("finished", 100, 0)
    assert healthy["created"] <= healthy["updated"]
    assert healthy["problem"] is None
    assert by_name["broken"]["loss"] == "NaN"


def test_an_unreadable_run_is_listed_with_its_problem(call: Call, runs: Path) -> None:
    (runs / "damaged").mkdir()
    (runs / "damaged" / "run.json").write_text("{")
    outcome = call("runs", runs)
    assert outcome.returncode == 0
    assert "unreadable: " in next(line for line in outcome.stdout.splitlines() if line.startswith("damaged"))
    listing = strict_json.loads(call("runs", runs, "--json").stdout)
    problem = next(run["problem"] for run in listing["runs"] if run["name"] == "damaged")
    assert "run.json" in problem


def test_an_empty_folder_is_no_error(call: Call, tmp_path: Path) -> None:
    outcome = call("runs", tmp_path)
    assert (outcome.returncode, outcome.stdout) == (0, "")
    assert "no runs" in outcome.stderr
    assert strict_json.loads(call("runs", tmp_path, "--json").stdout)["runs"] == []


def test_names_cannot_steer_the_terminal(call: Call, runs: Path) -> None:
    (runs / "healthy").rename(runs / "\x1b[31mred\n")
    info = runs / "\x1b[31mred\n" / "run.json"
    info.write_text(info.read_text().replace('"healthy"', '"\\u001b[31mred\\n"'))
    outcome = call("runs", runs)
    assert "\x1b" not in outcome.stdout
    assert len(outcome.stdout.splitlines()) == 3


def test_findings_are_counted_by_severity(call: Call, tmp_path: Path) -> None:
    told = {"a": ["critical", "critical", "warning", "info"], "b": ["info"], "c": [], "d": ["warning", "warning"]}
    for name, severities in told.items():
        with sonde.record(tmp_path / name) as writer:
            for first, severity in enumerate(severities):
                for _ in range(2):  # it was told again
                    data = {"code": "ABC001", "first_step": first, "severity": severity}
                    writer.event("finding", step=first, data=data)
    lines = {line.split()[0]: line for line in call("runs", tmp_path).stdout.splitlines()[1:]}
    assert "2 critical, 1 warning, 1 note" in lines["a"]
    assert "1 note " in lines["b"]
    assert " - " in lines["c"]
    assert "2 warnings" in lines["d"]
    shown = {run["name"]: run for run in json.loads(call("runs", tmp_path, "--json").stdout)["runs"]}
    assert (shown["a"]["findings"], shown["a"]["severities"]) == (4, {"critical": 2, "warning": 1, "info": 1})
    assert shown["c"]["severities"] == {}


def test_a_run_that_does_not_say_severities_shows_its_number(call: Call, tmp_path: Path) -> None:
    with sonde.record(tmp_path / "old") as writer:
        writer.event("finding", data={"text": "by a program of one's own"})
    assert " 1 " in call("runs", tmp_path).stdout.splitlines()[1]
