import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import sonde
from sonde.core import strict_json
from sonde.core.findings import Verdict
from sonde.integrations.epilogue import epilogue

Call = Callable[..., subprocess.CompletedProcess[str]]


def _spiky(folder: Path) -> Path:
    with sonde.record(folder) as writer:
        for step in range(1, 301):
            wiggle = 0.01 * ((step * 7919) % 13)
            writer.log({"loss": 2 / (1 + step / 50) + wiggle + (8.0 if step == 250 else 0.0), "lr": 1e-3}, step=step)
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
    assert (outcome.returncode, shown["schema"], shown["verdict"], shown["steps"]) == (1, 2, "critical", 300)
    (spike,) = [finding for finding in shown["findings"] if finding["code"] == "LOS002"]
    assert spike["first_step"] == 250
    assert spike["evidence"][0]["tag"] == "loss"


def _empty(folder: Path) -> Path:
    with sonde.record(folder):
        pass
    return folder


def _without_loss(folder: Path) -> Path:
    with sonde.record(folder) as writer:
        for step in range(1, 101):
            writer.log({"lr": 1e-3}, step=step)
    return folder


def _damaged(folder: Path) -> Path:
    with sonde.record(folder) as writer:
        for step in range(1, 301):
            writer.log({"loss": 1 / step, "lr": 1e-3}, step=step)
    segments = sorted((folder / "tables").rglob("*.parquet"))
    segments[0].write_bytes(b"no parquet")
    return folder


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (_empty, "nothing was recorded"),
        (_without_loss, "no loss was recorded"),
        (_damaged, "damaged tables: tables/"),
    ],
)
def test_a_run_of_which_too_little_is_known_is_not_called_healthy(
    call: Call, tmp_path: Path, record: Callable[[Path], Path], why: str
) -> None:
    run = record(tmp_path / "run")
    outcome = call("diagnose", run)
    assert outcome.returncode == 3
    assert "not enough to judge after" in outcome.stdout
    assert why in outcome.stdout
    assert "healthy" not in outcome.stdout
    shown = strict_json.loads(call("diagnose", run, "--json").stdout)
    assert shown["verdict"] == "unknown"
    assert any(why in reason for reason in shown["not_enough"])


@pytest.mark.parametrize("kind", ["healthy", "broken", "empty", "without loss", "spiky"])
def test_the_verdict_is_the_same_words_wherever_it_is_said(call: Call, runs: Path, tmp_path: Path, kind: str) -> None:
    made = {"empty": _empty, "without loss": _without_loss, "spiky": _spiky}
    run = made[kind](tmp_path / "run") if kind in made else runs / kind
    diagnosis = sonde.diagnose(run)
    words = diagnosis.verdict.words
    said = [
        str(diagnosis).splitlines()[-1],
        call("diagnose", run).stdout,
        call("diagnose", run, "--guide").stdout,
        call("report", run, "--md", "-o", "-").stdout,
        call("report", run, "--html", "-o", "-").stdout,
        epilogue(run, diagnosis.findings, judged=True).splitlines()[0],
    ]
    for text in said:
        assert words in text
        others = {verdict.words for verdict in Verdict if verdict.words not in words}
        assert not any(f": {other} after" in text or f"training is {other}" in text for other in others)
    assert strict_json.loads(call("diagnose", run, "--json").stdout)["verdict"] == diagnosis.verdict.value


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


def _with_settings(run: Path, **rules: object) -> Path:
    info = strict_json.loads((run / "run.json").read_text())
    info["settings"] = {
        f"rules.{name.replace('__', '.')}": {"value": value, "from": "argument"} for name, value in rules.items()
    }
    (run / "run.json").write_text(strict_json.dumps(info))
    return run


def test_a_run_cannot_switch_rules_off_silently(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = _with_settings(_spiky(tmp_path / "run"), LOS002=False, GRD008__window=6, GEN001=True)
    outcome = call("diagnose", run)
    assert "LOS002 loss-spike" not in outcome.stdout
    assert "steps, judged by the run's own settings: LOS002 off, GRD008.window = 6\n" in outcome.stdout
    told = strict_json.loads(call("diagnose", run, "--json").stdout)["own_settings"]
    assert told == {"off": ["LOS002"], "changed": {"GRD008.window": 6}, "ignored": {}}
    by_default = call("diagnose", run, "--defaults")
    assert "LOS002 loss-spike" in by_default.stdout
    assert "own settings" not in by_default.stdout
    (tmp_path / "profile.toml").write_text("LOS002 = true\n")
    overruled = call("diagnose", run, "--profile", tmp_path / "profile.toml").stdout
    assert "LOS002 loss-spike" in overruled
    assert "own settings: GRD008.window = 6\n" in overruled
    for form in ("--md", "--html"):
        page = call("report", run, form, "-o", "-").stdout
        assert "own settings: LOS002 off, GRD008.window = 6" in page.replace("&#x27;", "'")
        assert "own settings" not in call("report", run, form, "-o", "-", "--defaults").stdout
    assert "judged by its own settings" in call("compare", run, _spiky(tmp_path / "other")).stdout


def test_stored_settings_that_are_wrong_or_ask_for_gigabytes_are_ignored_and_said(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = _with_settings(
        _spiky(tmp_path / "run"), GRD008__window=10**12, OPT003__window=10**400, XYZ999=False, LOS002="\x1b[2J"
    )
    outcome = call("diagnose", run)
    assert outcome.returncode == 1
    assert "own settings" not in outcome.stdout
    (said,) = [
        line for line in outcome.stdout.splitlines() if line.startswith("settings of the run that are ignored: ")
    ]
    assert "GRD008.window (`GRD008.window` must be at most 10,000; got more)" in said
    assert "XYZ999 (there is no rule `XYZ999`" in said
    ignored = strict_json.loads(call("diagnose", run, "--json").stdout)["own_settings"]["ignored"]
    assert set(ignored) == {"GRD008.window", "OPT003.window", "XYZ999", "LOS002"}
    assert "must be at most 10,000" in call("report", run, "--md", "-o", "-").stdout


def test_the_checklist_is_printed_in_the_words_of_the_report(call: Call, runs: Path) -> None:
    outcome = call("diagnose", runs / "healthy", "--checklist")
    assert outcome.returncode == 0
    told = sonde.report(runs / "healthy").markdown()
    lines = [line.strip("| ").split("|") for line in told.split("\n") if "The loss falls smoothly" in line]
    ((_, *words),) = lines
    printed = next(line for line in outcome.stdout.split("\n") if "The loss falls smoothly" in line)
    assert printed.startswith("ok ")
    assert all(word.strip() in printed for word in words)
    assert "lines that could be judged are in order, over the last 100 steps." in outcome.stdout
    assert outcome.stdout.count("\nnot measured") >= 5
    assert "Health checklist" not in call("diagnose", runs / "healthy").stdout


def test_the_checklist_names_what_is_not_in_order(call: Call, runs: Path) -> None:
    printed = call("diagnose", runs / "broken", "--checklist").stdout.split("\n")
    (line,) = [line for line in printed if "The loss falls smoothly" in line]
    assert line.startswith("not ok")
    assert "40 of 100 losses are NaN or infinite" in line
    (line,) = [line for line in printed if "No alarm is open" in line]
    assert line.startswith("not ok")


def test_the_checklist_in_json_has_numbers_and_ranges(call: Call, runs: Path) -> None:
    shown = strict_json.loads(call("diagnose", runs / "healthy", "--checklist", "--json").stdout)
    checks = {check["name"]: check for check in shown["checklist"]}
    norm = checks["The gradient norm is of ordinary size"]
    assert (norm["standing"], norm["value"], norm["low"], norm["high"]) == ("ok", 1.0, 0.1, 10.0)
    assert checks["The GPU is busy"]["standing"] == "not measured"
    assert "checklist" not in strict_json.loads(call("diagnose", runs / "healthy", "--json").stdout)


def test_the_checklist_of_a_run_without_rows_says_so(call: Call, tmp_path: Path) -> None:
    with sonde.record(tmp_path / "empty"):
        pass
    outcome = call("diagnose", tmp_path / "empty", "--checklist")
    assert "Health checklist: nothing was recorded." in outcome.stdout
