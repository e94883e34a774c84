import math
import platform
from pathlib import Path

import pytest

import sonde
from sonde.core.errors import FormatError, RunNotFound, RunNotWritable
from sonde.store.export import export
from sonde.store.importing.imports import Imported, import_logs


def imported(folder: Path, text: str) -> tuple[Imported, sonde.Run]:
    file = folder / "log.csv"
    file.write_text(text, encoding="utf-8")
    made = import_logs("csv", file, folder / "run")
    return made, sonde.load(made.path)


def points(run: sonde.Run, tag: str) -> dict[int, float]:
    series = run.series(tag)
    return dict(zip(series.step.tolist(), series.value.tolist(), strict=True))


def test_a_row_an_epoch_is_a_step_an_epoch(tmp_path: Path) -> None:
    made, run = imported(tmp_path, "epoch,train_loss,val_loss\n1,3.5,3.75\n2,2.5,2.75\n")
    assert points(run, "loss") == {1: 3.5, 2: 2.5}
    assert points(run, "val/loss") == {1: 3.75, 2: 2.75}
    assert points(run, "epoch") == {1: 1, 2: 2}
    assert made.steps == 2


def test_lightnings_rows_with_empty_fields_come_together(tmp_path: Path) -> None:
    text = "epoch,step,train_loss_step,val_loss\n0,49,1.5,\n0,49,,1.25\n1,99,1.0,\n1,99,,0.75\n"
    _, run = imported(tmp_path, text)
    assert points(run, "loss") == {49: 1.5, 99: 1.0}
    assert points(run, "val/loss") == {49: 1.25, 99: 0.75}
    assert points(run, "epoch") == {49: 0, 99: 1}


def test_batches_that_begin_anew_in_every_epoch_are_counted(tmp_path: Path) -> None:
    rows = [f"{epoch},{batch},{epoch * 3 + batch}" for epoch in range(2) for batch in range(3)]
    _, run = imported(tmp_path, "\n".join(["epoch,batch,loss", *rows]) + "\n")
    assert points(run, "loss") == {1: 0, 2: 1, 3: 2, 4: 3, 5: 4, 6: 5}
    assert points(run, "epoch") == {4: 1}


def test_fractions_of_epochs_are_no_steps(tmp_path: Path) -> None:
    _, run = imported(tmp_path, "epoch,loss\n0.5,4\n1.0,3\n1.5,2\n2.0,1\n")
    assert points(run, "loss") == {1: 4, 2: 3, 3: 2, 4: 1}
    assert points(run, "epoch") == {2: 1, 4: 2}


def test_without_a_step_rows_are_counted_and_it_is_said(tmp_path: Path) -> None:
    made, run = imported(tmp_path, "loss;lr\n2;0.5\n1;0.25\n")
    assert points(run, "loss") == {1: 2, 2: 1}
    assert any("counted" in note for note in made.notes)


def test_not_a_number_and_infinities_are_kept_and_empty_is_not_measured(tmp_path: Path) -> None:
    _, run = imported(tmp_path, "step,loss\n1,NaN\n2,inf\n3,-Infinity\n4,\n5,1e999\n6,7\n")
    found = points(run, "loss")
    assert math.isnan(found.pop(1))
    assert found == {2: math.inf, 3: -math.inf, 5: math.inf, 6: 7}


def test_a_training_that_was_started_again_counts_as_it_came_last(tmp_path: Path) -> None:
    made, run = imported(tmp_path, "step,loss\n1,5\n2,4\n3,9\n4,9\n3,3\n")
    assert points(run, "loss") == {1: 5, 2: 4, 3: 3}
    assert any("started again" in note for note in made.notes)


def test_the_newest_row_may_come_first(tmp_path: Path) -> None:
    _, run = imported(tmp_path, "step,loss\n3,1\n2,2\n1,3\n")
    assert points(run, "loss") == {1: 3, 2: 2, 3: 1}


@pytest.mark.parametrize("time", ["1700000000", "1700000000000", "2023-11-14 22:13:20"])
def test_times_are_kept_however_they_are_written(tmp_path: Path, time: str) -> None:
    _, run = imported(tmp_path, f"step,timestamp,loss\n1,{time},5\n")
    assert run.series("loss").time.tolist() == [1700000000.0]
    assert run.tags() == ["loss"]


def test_times_since_the_start_are_a_series(tmp_path: Path) -> None:
    _, run = imported(tmp_path, "step,time,loss\n1,0.5,5\n2,1.0,4\n")
    assert points(run, "time") == {1: 0.5, 2: 1.0}


def test_steps_that_no_run_can_have_are_left_out_and_said(tmp_path: Path) -> None:
    made, run = imported(tmp_path, "step,loss\n-1,5\n1,4\n99999999999999999999999,3\n")
    assert points(run, "loss") == {1: 4}
    assert any("2 numbers" in note for note in made.notes)


def test_text_is_left_out_and_unknown_names_are_kept(tmp_path: Path) -> None:
    made, run = imported(tmp_path, "step,loss,phase,Mood (1-5)\n1,5,warm,3\n2,4,hot,4\n")
    assert run.tags() == ["Mood_1-5", "loss"]
    assert "Mood_1-5" in str(made)


def test_what_was_exported_comes_back_as_it_was(tmp_path: Path) -> None:
    with sonde.record(tmp_path / "own") as writer:
        for step in range(1, 50):
            writer.log({"loss": 1 / step, "lr": 0.1, "grad/norm@fc.weight": step / 3}, step=step, time=1.7e9 + step)
            if step % 10 == 0:
                writer.log(
                    {"val/loss": 2 / step, "epoch": step // 10}, step=step, table="evaluation", time=1.7e9 + step
                )
    own = sonde.load(tmp_path / "own")
    export(own, tmp_path / "own.csv")
    back = sonde.load(import_logs("csv", tmp_path / "own.csv", tmp_path / "back").path)
    assert back.tags() == own.tags()
    for tag in own.tags():
        ours, theirs = own.series(tag), back.series(tag)
        assert (ours.step == theirs.step).all()
        assert (ours.value == theirs.value).all()
        assert (ours.time == theirs.time).all()


@pytest.mark.parametrize("text", ["", "step,loss\n", "1,2\n3,4\n", "step,phase\n1,warm\n", 'step,loss\n1,"2\x00'])
def test_a_file_without_header_or_numbers_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(FormatError, match=r"log\.csv"):
        imported(tmp_path, text)
    assert not (tmp_path / "run").exists()


def test_no_file_and_a_taken_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunNotFound):
        import_logs("csv", tmp_path / "none.csv", tmp_path / "run")
    imported(tmp_path, "step,loss\n1,2\n")
    with pytest.raises(RunNotWritable, match="already"):
        import_logs("csv", tmp_path / "log.csv", tmp_path / "run")


@pytest.mark.parametrize(
    ("validation", "training", "verdict"),
    [
        ((3.5, 2.8, 2.7, 2.68), (3.2, 2.1, 2.0, 1.98), "slowing"),
        ((4.6, 4.4, 4.2, 4.1), (4.5, 4.2, 4.0, 3.9), "underfitting"),
        ((3.6, 2.8, 2.6, 2.7), (3.5, 2.1, 1.2, 0.8), "overfitting"),
    ],
)
def test_epochs_of_a_csv_are_diagnosed(
    tmp_path: Path, validation: tuple[float, ...], training: tuple[float, ...], verdict: str
) -> None:
    rows = [f"{i},{train},{val}" for i, (train, val) in enumerate(zip(training, validation, strict=True), start=1)]
    _, run = imported(tmp_path, "\n".join(["epoch,train_loss,val_loss", *rows]) + "\n")
    diagnosis = sonde.diagnose(run)
    assessment = next(finding for finding in diagnosis if finding.code == "GEN004")
    assert assessment.message.startswith(verdict)
    causes = {"slowing": "plateau", "underfitting": "underfitting", "overfitting": "overfitting"}
    assert assessment.causes[0].cause == causes[verdict]
    assert diagnosis.verdict == ("warning" if verdict == "overfitting" else "info")


def test_nothing_of_this_machine_is_noted_as_the_training_s(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("step,loss,timestamp\n0,3.5,1700000000\n1,2.5,1700000060\n")
    run = sonde.load(import_logs("csv", log, tmp_path / "run").path)
    assert run.info["environment"] == {}
    assert run.info["created"] == 1.7e9
    assert set(run.info["sessions"][0]) == {"started", "process"}
    report = sonde.report(run).markdown()
    assert "Where the training ran is not known" in report
    assert platform.python_version() not in report
    assert "2023-11-14" in report
    assert "2 steps in 1 min." in report


def test_a_log_without_times_has_no_duration(tmp_path: Path) -> None:
    _, run = imported(tmp_path, "step,loss\n0,3.5\n1,2.5\n")
    assert "2 steps. " in sonde.report(run).markdown()
