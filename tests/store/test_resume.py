"""Runs that are continued, and runs that go back."""

from pathlib import Path

import numpy as np
import pytest

import sonde
from sonde.core.frames import Columns, Detail, Frame
from sonde.core.records import Branch, Ending

LAYERS = Columns("layers", ("grad/norm@a", "grad/norm@b"), Detail.LAYER)


def record(path: Path, steps: range, value: float, *, segment_rows: int = 1000, every: int = 1) -> None:
    with sonde.Writer(path, segment_rows=segment_rows) as run:
        for step in steps:
            run.log({"loss": value}, step=step)
            if step % every == 0:
                run.append(Frame(LAYERS, step, float(step), np.full(2, value, np.float32)))


@pytest.mark.parametrize("segment_rows", [1, 7, 1000])
def test_an_existing_run_is_continued_on_the_same_line(tmp_path: Path, segment_rows: int) -> None:
    record(tmp_path, range(20), 1.0, segment_rows=segment_rows)
    record(tmp_path, range(20, 50), 2.0, segment_rows=segment_rows)
    run = sonde.load(tmp_path)
    loss = run.series("loss")
    assert loss.step.tolist() == list(range(50))
    assert loss.value.tolist() == [1.0] * 20 + [2.0] * 30
    assert run.branches == [Branch(0, None, 0)]
    assert len(run.info["sessions"]) == 2
    assert run.steps == 49


@pytest.mark.parametrize("segment_rows", [1, 7, 1000])
def test_going_back_starts_a_branch_and_keeps_the_old_points(tmp_path: Path, segment_rows: int) -> None:
    record(tmp_path, range(100), 1.0, segment_rows=segment_rows, every=10)
    record(tmp_path, range(60, 80), 2.0, segment_rows=segment_rows, every=10)
    run = sonde.load(tmp_path)
    assert run.branches == [Branch(0, None, 0), Branch(1, 0, 60)]
    now, before = run.series("loss"), run.series("loss", branch=0)
    assert now.step.tolist() == list(range(80))
    assert now.value.tolist() == [1.0] * 60 + [2.0] * 20
    assert before.value.tolist() == [1.0] * 100
    assert run.series("grad/norm@b").step.tolist() == [0, 10, 20, 30, 40, 50, 60, 70]
    assert run.steps == 79
    assert run.last()["loss"] == (79, 2.0, now.time[-1])
    assert run.last()["grad/norm@a"].value == 2.0
    window = run.window("loss", points=8)
    assert int(window.finite.sum()) == 80
    assert run.window("loss", points=8, branch=0).max.max() == 1.0
    assert len(run.table("loss")) == 80


def test_a_row_at_the_step_where_the_last_session_ended_counts_as_going_back(tmp_path: Path) -> None:
    record(tmp_path, range(10), 1.0)
    record(tmp_path, range(9, 12), 2.0)
    run = sonde.load(tmp_path)
    assert run.series("loss").value.tolist() == [1.0] * 9 + [2.0] * 3
    assert [branch.fork_step for branch in run.branches] == [0, 9]


def test_a_branch_of_a_branch_reads_along_its_own_line(tmp_path: Path) -> None:
    with sonde.record(tmp_path) as run:
        for value, steps in ((0.0, range(10)), (1.0, range(6, 9)), (2.0, range(3, 6)), (3.0, range(4, 6))):
            for step in steps:
                run.log({"loss": value}, step=step)
    read = sonde.load(tmp_path)
    assert read.series("loss").value.tolist() == [0, 0, 0, 2, 3, 3]
    assert read.series("loss", branch=1).value.tolist() == [0, 0, 0, 0, 0, 0, 1, 1, 1]
    assert read.series("loss", branch=2).value.tolist() == [0, 0, 0, 2, 2, 2]
    with pytest.raises(ValueError, match="branch"):
        read.series("loss", branch=4)


def test_an_announced_branch_hides_what_was_recorded_behind_it(tmp_path: Path) -> None:
    with sonde.record(tmp_path) as run:
        for step in range(10):
            run.log({"loss": 1.0}, step=step)
        run.branch(4)
        run.flush()
        assert sonde.load(tmp_path).series("loss").step.tolist() == [0, 1, 2, 3]
        run.log({"loss": 2.0}, step=4)
    assert sonde.load(tmp_path).series("loss").value.tolist() == [1, 1, 1, 1, 2]


def test_a_branch_ahead_of_everything_recorded_is_none(tmp_path: Path) -> None:
    with sonde.record(tmp_path) as run:
        run.branch(0)
        run.log({"loss": 1.0}, step=0)
        run.branch(5)
        run.log({"loss": 1.0}, step=5)
    assert len(sonde.load(tmp_path).branches) == 1


def test_columns_of_an_earlier_session_keep_their_places(tmp_path: Path) -> None:
    with sonde.record(tmp_path) as run:
        run.log({"loss": 1.0, "lr": 0.1}, step=0)
    with sonde.record(tmp_path) as run:
        run.log({"lr": 0.2, "new": 5.0, "loss": 0.5}, step=1)
    read = sonde.load(tmp_path)
    assert read.series("loss").value.tolist() == [1.0, 0.5]
    assert read.series("lr").value.tolist() == pytest.approx([0.1, 0.2])
    assert read.series("new").step.tolist() == [1]


def test_the_configuration_stays_unless_a_new_one_is_given(tmp_path: Path) -> None:
    sonde.record(tmp_path, config={"lr": 0.1}).close()
    sonde.record(tmp_path).close()
    assert sonde.load(tmp_path).info["config"] == {"lr": 0.1}
    sonde.record(tmp_path, config={"lr": 0.2}).close()
    assert sonde.load(tmp_path).info["config"] == {"lr": 0.2}


def test_a_continued_run_is_live_again_and_then_finished(tmp_path: Path) -> None:
    record(tmp_path, range(3), 1.0)
    with sonde.record(tmp_path) as run:
        assert sonde.load(tmp_path).state.ending is Ending.LIVE
        run.log({"loss": 1.0}, step=3)
    state = sonde.load(tmp_path).state
    assert (state.ending, state.steps) == (Ending.FINISHED, 3)


def test_tables_that_ended_at_different_steps_go_back_together(tmp_path: Path) -> None:
    """A killed process leaves one table a few rows ahead of the other."""
    with sonde.record(tmp_path) as run:
        for step in range(10):
            run.log({"loss": 1.0}, step=step)
        for step in range(15):
            run.append(Frame(LAYERS, step, 0.0, np.ones(2, np.float32)))
    record(tmp_path, range(10, 12), 2.0)
    run_ = sonde.load(tmp_path)
    assert run_.branches[-1] == Branch(1, 0, 10)
    assert run_.series("loss").value.tolist() == [1.0] * 10 + [2.0] * 2
    assert run_.series("grad/norm@a").value.tolist() == [1.0] * 10 + [2.0] * 2


def test_a_row_of_the_disputed_step_follows_the_run_that_went_back(tmp_path: Path) -> None:
    with sonde.record(tmp_path) as run:
        for step in range(10):
            run.log({"loss": 1.0}, step=step)
        for step in range(11):
            run.append(Frame(LAYERS, step, 0.0, np.ones(2, np.float32)))
    record(tmp_path, range(10, 12), 2.0)
    read = sonde.load(tmp_path)
    assert read.series("loss").step.tolist() == list(range(12))
    assert read.series("loss").value.tolist() == [1.0] * 10 + [2.0] * 2
    assert read.series("grad/norm@a").value.tolist() == [1.0] * 10 + [2.0] * 2


def test_a_late_evaluation_of_the_last_step_does_not_go_back(tmp_path: Path) -> None:
    record(tmp_path, range(10), 1.0)
    with sonde.record(tmp_path) as run:
        run.log({"val/loss": 3.0}, step=9, table="evaluation")
        run.log({"loss": 1.0}, step=10)
    read = sonde.load(tmp_path)
    assert len(read.branches) == 1
    assert read.series("loss").step.tolist() == list(range(11))
    assert read.series("val/loss").step.tolist() == [9]


def test_a_new_table_of_a_resumed_run_goes_back_with_the_others(tmp_path: Path) -> None:
    record(tmp_path, range(10), 1.0)
    with sonde.record(tmp_path) as run:
        run.log({"val/loss": 3.0}, step=5, table="evaluation")
        run.log({"loss": 2.0}, step=5)
    read = sonde.load(tmp_path)
    assert read.branches == [Branch(0, None, 0), Branch(1, 0, 5)]
    assert read.series("val/loss").step.tolist() == [5]
    assert read.series("loss").value.tolist() == [1.0] * 5 + [2.0]
