"""A run that is there already: continued, left alone, or refused."""

import logging
from pathlib import Path
from typing import Any

import pytest

import sonde
from sonde.core.errors import RunNotWritable, StoreError


def recorded(run: Path, steps: range, **given: Any) -> Path:
    with sonde.record(run, **given) as writer:
        for step in steps:
            writer.log({"loss": float(step)}, step=step)
        return writer.path


def test_a_run_that_goes_back_is_said_to_continue_as_a_branch(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = tmp_path / "run"
    recorded(run, range(1, 11))
    recorded(run, range(11, 16))
    assert caplog.records == []  # it went on
    recorded(run, range(1, 4))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "up to step 15, and goes on at step 1: continuing as branch 1" in record.getMessage()
    read = sonde.load(run)
    assert [branch.number for branch in read.branches] == [0, 1]
    assert (len(read.series("loss").step), len(read.series("loss", branch=0).step)) == (3, 15)
    recorded(run, range(1, 3))
    assert "continuing as branch 2" in caplog.records[-1].getMessage()


def test_a_checkpoint_that_says_where_it_goes_on_is_no_surprise(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorded(tmp_path / "run", range(1, 11))
    with sonde.record(tmp_path / "run") as writer:
        writer.branch(5)
        writer.log({"loss": 1.0}, step=5)
    assert caplog.records == []


def test_a_new_run_leaves_the_old_ones_alone(tmp_path: Path) -> None:
    run = tmp_path / "run"
    paths = [recorded(run, range(1, 4), if_exists="new", config={"try": i}) for i in range(3)]
    assert paths == [run, tmp_path / "run-2", tmp_path / "run-3"]
    assert [sonde.load(path).info["config"] for path in paths] == [{"try": i} for i in range(3)]
    assert [sonde.load(path).name for path in paths] == ["run", "run-2", "run-3"]


def test_a_new_run_takes_a_folder_that_is_empty_and_passes_over_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    assert recorded(tmp_path / "run", range(2), if_exists="new") == tmp_path / "run"
    (tmp_path / "run-2").write_text("a file")
    (tmp_path / "run-3").mkdir()
    assert recorded(tmp_path / "run", range(2), if_exists="new") == tmp_path / "run-4"


def test_a_run_that_must_not_be_there_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert recorded(run, range(3), if_exists="error") == run
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(RunNotWritable, match="holds a run already"):
        sonde.record(run, if_exists="error")
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert list(tmp_path.iterdir()) == [run]


@pytest.mark.parametrize("value", ["New", "overwrite", "", None, True])
def test_only_three_answers_are_known(tmp_path: Path, value: Any) -> None:
    with pytest.raises(ValueError, match='one of "continue", "new", "error"'):
        sonde.record(tmp_path / "run", if_exists=value)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_beside_that_cannot_be_made_is_an_error_of_the_store(tmp_path: Path) -> None:
    recorded(tmp_path / "run", range(2))
    with pytest.raises(StoreError):
        sonde.record(tmp_path / "run" / "run.json", if_exists="new")


def test_a_step_that_is_left_out_is_the_next_one(tmp_path: Path) -> None:
    with sonde.record(tmp_path / "run") as run:
        for value in (1.0, 2.0):
            run.log({"loss": value})
        run.log({"loss": 10.0}, step=10)
        run.log({"loss": 11.0})
        run.log({"val/loss": 5.0}, table="evaluation")
        run.branch(4)
        run.log({"loss": 4.0})
        run.log({"loss": 5.0})
    with sonde.record(tmp_path / "run") as run:
        run.log({"loss": 6.0})
        run.log({"other": 1.0}, table="another")
    read = sonde.load(tmp_path / "run")
    assert read.series("loss", branch=0).step.tolist() == [1, 2, 10, 11]
    assert read.series("loss").step.tolist() == [1, 2, 4, 5, 6]


def test_the_order_of_old_is_refused_with_the_new_one(tmp_path: Path) -> None:
    with sonde.record(tmp_path / "run") as run, pytest.raises(TypeError, match=r'log\(\{"loss": 0.7\}, step=3\)'):
        run.log(3, {"loss": 0.7})  # type: ignore[arg-type]
