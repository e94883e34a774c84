import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sonde
from sonde.core.errors import FormatError, RunNotFound
from sonde.store.importing.imports import import_logs
from sonde.store.importing.tensorboard import read

SummaryWriter: Any = pytest.importorskip("torch.utils.tensorboard").SummaryWriter


def points(run: sonde.Run, tag: str) -> dict[int, float]:
    series = run.series(tag)
    return dict(zip(series.step.tolist(), series.value.tolist(), strict=True))


def brought(source: Path, out: Path, **options: Any) -> sonde.Run:
    return sonde.load(import_logs("tensorboard", source, out, **options).path)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return tmp_path / "logs"


def test_the_numbers_are_those_that_tensorboard_reads(logs: Path, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    generator = np.random.default_rng(0)
    with SummaryWriter(logs) as writer:
        for step in range(300):
            writer.add_scalar("Loss/train", generator.normal(), step)
            writer.add_scalar("lr", generator.random(), step, new_style=True, double_precision=step % 2 == 0)
            if step % 50 == 0:
                writer.add_histogram("weights", generator.normal(size=100), step)
                writer.add_scalar("Loss/validation", generator.normal(), step)
    reference = EventAccumulator(str(logs), size_guidance={"scalars": 0, "tensors": 0}).Reload()
    run = brought(logs, tmp_path / "run")
    for theirs, ours in (("Loss/train", "loss"), ("Loss/validation", "val/loss")):
        events, series = reference.Scalars(theirs), run.series(ours)
        assert series.step.tolist() == [event.step for event in events]
        assert series.value.tolist() == [event.value for event in events]
        assert series.time.tolist() == [event.wall_time for event in events] or ours == "val/loss"
    tensors = reference.Tensors("lr")
    values = [(event.tensor_proto.float_val or event.tensor_proto.double_val)[0] for event in tensors]
    assert run.series("lr").value.tolist() == np.array(values, np.float32).tolist()
    assert run.tags() == ["loss", "lr", "val/loss"]


def test_not_a_number_and_infinities_are_kept(logs: Path, tmp_path: Path) -> None:
    with SummaryWriter(logs) as writer:
        for step, value in enumerate((1.0, math.inf, -math.inf, math.nan)):
            writer.add_scalar("loss", value, step)
    found = points(brought(logs, tmp_path / "run"), "loss")
    assert math.isnan(found.pop(3))
    assert found == {0: 1.0, 1: math.inf, 2: -math.inf}


def write(folder: Path, tag: str, steps: range, value: float, time: float, **options: Any) -> None:
    with SummaryWriter(folder, filename_suffix=f".{time}", **options) as writer:
        writer.file_writer.event_writer.flush()
        for step in steps:
            writer.add_scalar(tag, value, step, walltime=time + step)


def test_a_restart_takes_the_place_of_what_it_repeats(logs: Path, tmp_path: Path) -> None:
    write(logs, "loss", range(10), 1.0, 1e9)
    write(logs, "loss", range(6, 8), 2.0, 2e9)
    assert points(brought(logs, tmp_path / "run"), "loss") == {**dict.fromkeys(range(6), 1.0), 6: 2.0, 7: 2.0}


def test_a_purge_step_forgets_all_series_from_there_on(logs: Path, tmp_path: Path) -> None:
    write(logs, "loss", range(10), 1.0, 1e9)
    write(logs, "lr", range(10), 1.0, 1.1e9)
    write(logs, "loss", range(8, 9), 2.0, 2e9, purge_step=5)
    run = brought(logs, tmp_path / "run")
    assert points(run, "loss") == {**dict.fromkeys(range(5), 1.0), 8: 2.0}
    assert points(run, "lr") == dict.fromkeys(range(5), 1.0)


def test_every_torn_tail_is_read_up_to_its_last_whole_number(logs: Path) -> None:
    write(logs, "loss", range(3), 1.0, 1e9)
    (file,) = logs.iterdir()
    whole = file.read_bytes()
    counts = []
    for end in range(len(whole) - 80, len(whole)):
        file.write_bytes(whole[:end])
        counts.append(len(list(read(str(logs)).entries)))
    assert sorted(counts) == counts
    assert set(counts) == {1, 2}


def test_a_damaged_file_is_refused_and_leaves_no_run(logs: Path, tmp_path: Path) -> None:
    write(logs, "loss", range(20), 1.0, 1e9)
    (file,) = logs.iterdir()
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)
    with pytest.raises(FormatError, match="damaged at byte"):
        brought(logs, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_folders_of_the_parts_of_a_run_belong_together(logs: Path, tmp_path: Path) -> None:
    write(logs / "train", "epoch_loss", range(3), 1.0, 1e9)
    write(logs / "validation", "epoch_loss", range(3), 2.0, 1e9)
    run = brought(logs, tmp_path / "run")
    assert points(run, "loss") == dict.fromkeys(range(3), 1.0)
    assert points(run, "val/loss") == dict.fromkeys(range(3), 2.0)


def test_add_scalars_makes_one_run(logs: Path, tmp_path: Path) -> None:
    with SummaryWriter(logs) as writer:
        for step in range(3):
            writer.add_scalars("Loss", {"train": 1.0, "val": 2.0}, step)
            writer.add_scalar("lr", 0.5, step)
    assert brought(logs, tmp_path / "run").tags() == ["loss", "lr", "val/loss"]


def test_of_several_runs_one_must_be_chosen(logs: Path, tmp_path: Path) -> None:
    write(logs / "a", "loss", range(3), 1.0, 1e9)
    write(logs / "b", "loss", range(3), 2.0, 1e9)
    with pytest.raises(RunNotFound, match=r"--run: a, b"):
        brought(logs, tmp_path / "run")
    run = brought(logs, tmp_path / "run", run="b")
    assert points(run, "loss") == dict.fromkeys(range(3), 2.0)
    assert run.name == "b"


def test_hyper_parameters_become_the_configuration(logs: Path, tmp_path: Path) -> None:
    with SummaryWriter(logs) as writer:
        writer.add_scalar("loss", 1.0, 1)
        writer.add_hparams({"lr": 0.5, "optimizer": "sgd", "nesterov": True}, {"final": 1.0}, run_name="hparams")
        writer.add_text("args", '{"batch": 8}')
    config = brought(logs, tmp_path / "run").info["config"]
    assert config == {"lr": 0.5, "optimizer": "sgd", "nesterov": True, "args": {"batch": 8}}


def test_validation_by_epoch_is_put_at_the_steps_of_its_times(logs: Path, tmp_path: Path) -> None:
    with SummaryWriter(logs) as writer:
        for step in range(1, 301):
            writer.add_scalar("Loss/train", 1.0, step, walltime=1e9 + step)
            if step % 100 == 0:
                writer.add_scalar("Loss/val", 2.0, step // 100, walltime=1e9 + step + 0.5)
    made = import_logs("tensorboard", logs, tmp_path / "run")
    assert points(sonde.load(made.path), "val/loss") == {100: 2.0, 200: 2.0, 300: 2.0}
    assert any("by epoch" in note for note in made.notes)


def test_a_folder_without_event_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunNotFound, match="tfevents"):
        brought(tmp_path, tmp_path / "run")
    with pytest.raises(RunNotFound, match="does not exist"):
        brought(tmp_path / "none", tmp_path / "run")


def test_a_picture_of_megabytes_is_passed_over(logs: Path, tmp_path: Path) -> None:
    with SummaryWriter(logs) as writer:
        writer.add_scalar("loss", 1.0, 1)
        noise = np.frombuffer(os.urandom(3 * 800 * 800), np.uint8).reshape(3, 800, 800)
        writer.add_image("noise", noise, 1)
        writer.add_scalar("loss", 2.0, 2)
    assert points(brought(logs, tmp_path / "run"), "loss") == {1: 1.0, 2: 2.0}


def test_names_that_people_make_by_hand_are_understood(logs: Path, tmp_path: Path) -> None:
    with SummaryWriter(logs) as writer:
        for step in range(1, 31):
            writer.add_scalar("train/step_loss", 3 / step, step)
            writer.add_scalar("train/step_loss_ema", 4 / step, step)
            for layer, size in (("net.0.weight", 1.0), ("net/2/weight", 2.0)):
                writer.add_scalar(f"gradients/{layer}/norm", size / step, step)
                writer.add_scalar(f"updates/{layer}/ratio", 1e-3 * size, step)
    imported = import_logs("tensorboard", logs, tmp_path / "run")
    assert "meaning unknown" not in str(imported)
    run = sonde.load(imported.path)
    assert sorted(run.tags()) == [
        "grad/norm@net.0.weight",
        "grad/norm@net.2.weight",
        "loss",
        "loss/ema",
        "update/ratio@net.0.weight",
        "update/ratio@net.2.weight",
    ]
    assert points(run, "loss")[30] == np.float32(0.1)
    assert points(run, "grad/norm@net.2.weight")[4] == 0.5
