"""The names of `sonde` that are thin over what the commands do."""

import csv
from pathlib import Path

import pytest

import sonde
from sonde.core.errors import RunNotFound, RunNotWritable
from sonde.core.records import Ending
from sonde.reports.problem_guides import GUIDES, text
from sonde.rules.catalogue import all_rules
from sonde.rules.rule import Rule


def recorded(run: Path) -> Path:
    with sonde.record(run) as writer:
        for step in range(1, 21):
            writer.log({"loss": 1 / step, "lr": 0.5}, step=step)
        writer.event("finding", data={"code": "ABC001", "first_step": 3, "severity": "warning"})
        writer.event("finding", data={"code": "ABC001", "first_step": 3, "severity": "critical"})
        writer.event("finding", data={"code": "ABC001", "first_step": 9, "severity": "info"})
    return run


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_a_run_is_exported_by_the_ending_of_the_file(tmp_path: Path, ending: str) -> None:
    run = recorded(tmp_path / "run")
    file = sonde.export(run, tmp_path / f"out.{ending}", tags="lo*")
    named = sonde.export(sonde.load(run), tmp_path / "other.txt", to=ending, tags="lo*")
    assert file == tmp_path / f"out.{ending}"
    assert file.read_bytes() == named.read_bytes()
    assert b"loss" in file.read_bytes()
    assert b"lr" not in file.read_bytes()


@pytest.mark.parametrize(("file", "to"), [("out.xlsx", None), ("out", None), ("out.csv", "xlsx")])
def test_a_format_that_is_none_is_refused(tmp_path: Path, file: str, to: str | None) -> None:
    run = recorded(tmp_path / "run")
    with pytest.raises(ValueError, match="must be one of parquet, csv, jsonl"):
        sonde.export(run, tmp_path / file, to=to)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_the_runs_of_a_folder_are_listed_with_their_findings_by_severity(tmp_path: Path) -> None:
    recorded(tmp_path / "run")
    (found,) = sonde.runs(tmp_path)
    assert (found.name, found.ending, found.steps) == ("run", Ending.FINISHED, 20)
    assert (found.findings, dict(found.severities)) == (2, {"critical": 1, "info": 1})
    with sonde.record(tmp_path / "run") as writer:  # they are told on
        writer.event("finding", data={"code": "ABC001", "first_step": 9, "severity": "warning"})
        writer.log({"loss": 1.0})
    (again,) = sonde.runs(tmp_path)
    assert (again.findings, dict(again.severities)) == (2, {"critical": 1, "warning": 1})
    with pytest.raises(RunNotFound):
        sonde.runs(tmp_path / "nothing")


def test_runs_are_looked_for_where_they_are_recorded_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recorded(Path("runs/mine"))
    assert [run.name for run in sonde.runs()] == ["mine"]


def test_a_csv_file_becomes_a_run(tmp_path: Path) -> None:
    with (tmp_path / "log.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["epoch", "my_loss", "val_loss"])
        writer.writerows([[1, 3.0, 3.5], [2, 2.0, 2.5]])
    imported = sonde.import_csv(tmp_path / "log.csv", tmp_path / "run", tags={"my_loss": "loss"})
    assert imported.tags["my_loss"] == "loss"
    assert sonde.load(imported.path).series("loss").value.tolist() == [3.0, 2.0]
    with pytest.raises(RunNotWritable, match="there already"):
        sonde.import_csv(tmp_path / "log.csv", tmp_path / "run")


@pytest.mark.parametrize("kind", ["tensorboard", "wandb", "mlflow"])
def test_the_golden_logs_of_other_programs_become_the_same_runs_as_by_the_command(tmp_path: Path, kind: str) -> None:
    from sonde.store.importing.imports import import_logs

    source = Path(__file__).parent / "golden" / kind
    if kind == "tensorboard":
        summary = pytest.importorskip("torch.utils.tensorboard")
        source = tmp_path / "logs"
        with summary.SummaryWriter(str(source)) as theirs:
            for step in range(5):
                theirs.add_scalar("loss", 1.0 / (step + 1), step)
    if kind == "mlflow":
        source = next((source / "mlruns").glob("*/*/meta.yaml")).parent
    by_name = getattr(sonde, f"import_{kind}")(source, tmp_path / "a")
    by_command = import_logs(kind, source, tmp_path / "b")
    assert by_name.tags == by_command.tags
    a, b = sonde.load(by_name.path), sonde.load(by_command.path)
    assert a.tags() == b.tags()
    assert str(a.table().to_pydict()) == str(b.table().to_pydict())  # NaN is not equal to itself


@pytest.mark.parametrize("rule", [all_rules()[0], all_rules()[-1]], ids=lambda rule: rule.code)
def test_a_rule_is_explained_by_code_and_by_name(rule: type[Rule]) -> None:
    page = sonde.explain(rule.code.lower())
    assert str(page) == repr(page) == str(sonde.explain(rule.name))
    assert str(page).startswith(f"{rule.code} {rule.name}\n")
    assert "```text" in page._repr_markdown_()


@pytest.mark.parametrize("name", GUIDES)
def test_a_guide_is_explained(name: str) -> None:
    assert sonde.explain(f" {name.upper()} ").guide == text(name)


def test_what_is_neither_rule_nor_guide_is_answered_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="loss-spike"):
        sonde.explain("los-spike")
    with pytest.raises(ValueError, match="list all"):
        sonde.explain("")
