import subprocess
from collections.abc import Callable
from pathlib import Path

import sonde
from sonde.core import strict_json
from sonde.core.sparkline import NON_FINITE

Call = Callable[..., subprocess.CompletedProcess[str]]


def test_the_page_has_state_curve_last_values_config_and_events(call: Call, runs: Path) -> None:
    text = call("show", runs / "healthy").stdout
    assert text.startswith(f"{runs / 'healthy'}\nfinished · 100 steps in ")
    assert "┤█" in text
    assert "loss       " in text
    assert "and 1 more series" in text
    assert "lr=0.1  model.width=8" in text
    assert "python" in text
    assert 'note at step 40  text="halved the batch"' in text


def test_a_loss_that_is_not_finite_is_visible_in_the_curve(call: Call, runs: Path) -> None:
    assert NON_FINITE not in call("show", runs / "healthy").stdout
    text = call("show", runs / "broken").stdout
    assert NON_FINITE * 30 in text
    assert "loss         NaN" in text


def test_json_is_strict_and_complete(call: Call, runs: Path) -> None:
    shown = strict_json.loads(call("show", runs / "healthy", "--json").stdout)
    assert (shown["schema"], shown["run"], shown["state"], shown["steps"]) == (1, "healthy", "finished", 100)
    assert shown["config"] == {"lr": 0.1, "model": {"width": 8}}
    assert shown["num_tags"] == 4
    assert list(shown["last"]) == ["loss", "lr", "grad/norm"]
    assert shown["last"]["loss"]["step"] == 100
    assert [(event["kind"], event["step"]) for event in shown["events"]] == [("note", 40)]
    broken = strict_json.loads(call("show", runs / "broken", "--json").stdout)
    assert broken["last"]["loss"]["value"] == "NaN"


def test_the_last_value_of_a_rare_series_names_its_step(call: Call, tmp_path: Path) -> None:
    with sonde.record(tmp_path / "run") as writer:
        writer.log({"loss": 1.0, "val/loss": 2.0}, step=1)
        writer.log({"loss": 1.0}, step=2)
    lines = call("show", tmp_path / "run").stdout.splitlines()
    assert "at step 1" in next(line for line in lines if line.startswith("val/loss"))
    assert not any("at step 2" in line for line in lines)


def test_a_run_without_rows_has_no_curve(call: Call, tmp_path: Path) -> None:
    with sonde.record(tmp_path / "run"):
        pass
    outcome = call("show", tmp_path / "run")
    assert outcome.returncode == 0
    assert "finished · 0 steps" in outcome.stdout
    assert "┤" not in outcome.stdout


def test_a_run_without_a_loss_shows_another_curve(call: Call, tmp_path: Path) -> None:
    with sonde.record(tmp_path / "run") as writer:
        for step in range(10):
            writer.log({"reward": float(step)}, step=step)
    assert "reward\n       9 ┤" in call("show", tmp_path / "run").stdout


def test_a_crash_says_why(call: Call, tmp_path: Path) -> None:
    try:
        with sonde.record(tmp_path / "run") as writer:
            writer.log({"loss": 1.0}, step=1)
            raise ValueError("no such\nlayer")
    except ValueError:
        pass
    text = call("show", tmp_path / "run").stdout
    assert "crashed · 1 step in" in text
    assert "ValueError: no such layer" in text


def test_nonsense_in_the_configuration_is_shown_as_text(call: Call, tmp_path: Path) -> None:
    config = {
        "[bold]": "[/]",
        "escape": "\x1b[31m",
        "list": [1, None],
        "nested": {"deep": {"er": float("nan")}},
        "none": None,
    }
    with sonde.record(tmp_path / "run", config=config) as writer:
        writer.log({"loss": 1.0}, step=1)
    text = call("show", tmp_path / "run").stdout
    assert '[bold]=[/]  escape=\\x1b[31m  list="1, None"  nested.deep.er=NaN' in text


def test_a_curve_whose_rows_are_damaged_is_said_to_be_unreadable(call: Call, tmp_path: Path) -> None:
    with sonde.record(tmp_path / "run") as run:
        for step in range(3000):
            run.log({"loss": 1.0}, step=step)
    for block in (tmp_path / "run").rglob("*.parquet"):
        block.write_bytes(b"no Parquet")
    outcome = call("show", tmp_path / "run")
    assert "loss: its rows cannot be read" in outcome.stdout


def test_a_target_is_answered_in_a_line_and_in_json(call: Call, runs: Path) -> None:
    first = sonde.load(runs / "healthy").series("loss").value[0]
    target = f"loss={first}"
    assert call("show", runs / "healthy", "--target", target).stdout.startswith("loss ")
    (shown,) = strict_json.loads(call("show", runs / "healthy", "--target", target, "--json").stdout)["targets"]
    assert (shown["tag"], shown["step"]) == ("loss", 1)


def test_a_target_that_is_no_series_and_number_is_refused(call: Call, runs: Path) -> None:
    for target, said in (("loss", "such as loss=0.5, got 'loss'"), ("loss=low", "got 'loss=low'"), ("los=1", "los")):
        outcome = call("show", runs / "healthy", "--target", target)
        assert outcome.returncode == 2
        assert said in outcome.stderr
        assert "Traceback" not in outcome.stderr


def test_nothing_is_printed_as_a_dictionary_or_a_list(call: Call, tmp_path: Path) -> None:
    config = {"data": [{"path": "a", "w": 1}, {"path": "b"}], "betas": [0.9, 0.99], "long": list(range(40)), "none": []}
    with sonde.record(tmp_path / "run", config=config) as writer:
        for step in range(1, 300):
            writer.log({"loss": 1 / step if step < 200 else float("nan"), "lr": 0.1}, step=step)
        for finding in sonde.diagnose(recorded_with_a_fault(tmp_path / "fault")):
            writer.event("finding", step=5, data=finding.to_json())
        writer.event("finding", data={"of": ["somebody", {"else": 1}]})
    shown = call("show", tmp_path / "run").stdout
    assert not set("{}[]") & set(shown)
    for words in ("data.0.path=a", "data.1.path=b", 'betas="0.9, 0.99"', "10, 11 and 28 more", "of.1.else=1"):
        assert words in shown
    assert "LOS001 non-finite-loss  critical  the loss became NaN" in shown


def recorded_with_a_fault(run: Path) -> Path:
    with sonde.record(run) as writer:
        for step in range(1, 300):
            writer.log({"loss": 1 / step if step < 200 else float("nan"), "lr": 0.1}, step=step)
    return run
