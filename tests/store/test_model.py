"""The model table in `run.json`."""

import json
from pathlib import Path
from typing import Any

import pytest

import sonde
from sonde.core.model_table import ModelTable, ModuleRow, ParameterRow
from sonde.core.parameter_kinds import Kind

TABLE = ModelTable(
    modules=(ModuleRow(name="model", type="Linear", depth=0),),
    parameters=(ParameterRow(name="weight", kind=Kind.MATRIX, shape=(2, 3), dtype="float32", group=0),),
)


def _record(folder: Path, *tables: ModelTable) -> Path:
    with sonde.record(folder) as writer:
        for step, table in enumerate(tables, 1):
            writer.describe(table)
            writer.log({"loss": 1.0}, step=step)
            assert writer.flush()
    return folder


def test_a_table_that_was_told_is_read_the_latest_one_counts_and_it_outlives_a_further_session(tmp_path: Path) -> None:
    assert sonde.load(_record(tmp_path / "a", ModelTable(), TABLE)).model == TABLE
    with sonde.record(tmp_path / "a") as writer:
        writer.log({"loss": 1.0}, step=9)
    assert sonde.load(tmp_path / "a").model == TABLE


def test_a_run_that_tells_of_no_model_has_none_and_no_problem(tmp_path: Path) -> None:
    with sonde.record(tmp_path / "a") as writer:
        writer.log({"loss": 1.0}, step=1)
    run = sonde.load(tmp_path / "a")
    assert run.model is None
    assert run.problems == []


def test_names_lose_their_secrets_as_other_texts_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "tr0ub4dor&3")
    row = ParameterRow(name="tr0ub4dor&3.weight", kind=Kind.MATRIX, shape=(1,), dtype="float32")
    folder = _record(tmp_path / "a", ModelTable(parameters=(row,)))
    assert "tr0ub4dor" not in (folder / "run.json").read_text()
    assert sonde.load(folder).model is not None


@pytest.mark.parametrize("told", [3, [], {"version": 9}, {"version": 1, "modules": [], "parameters": {}}, "x" * 999])
def test_a_damaged_table_is_no_table_and_the_run_is_read_without_it(tmp_path: Path, told: Any) -> None:
    folder = _record(tmp_path / "a", TABLE)
    said = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**said, "model": told}))
    run = sonde.load(folder)
    assert run.model is None
    assert any("model table" in problem for problem in run.problems)
    assert sonde.diagnose(run).steps == 1
    assert sonde.report(run).markdown()
    assert sonde.compare(run, folder).against[0].parameters == ()
