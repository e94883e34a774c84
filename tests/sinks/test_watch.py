"""Sinks of a training that is being watched: what they hold is what the run holds."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sonde
from sonde.core.errors import SettingError
from sonde.core.frames import Frame
from sonde.sinks.sink import Sink

from .services import EVERYTHING, Service

torch = pytest.importorskip("torch", reason="the monitor needs it")


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SONDE_CONSOLE", "quiet")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Training:
    """A small one, that can be saved and loaded."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)
        self._x = torch.randn(32, 8)

    def train(self, watch: sonde.Watch, num_steps: int) -> None:
        for _ in range(num_steps):
            loss = (self.model(self._x) - self._x.sum(1, keepdim=True)).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            watch.step(loss)
        watch.evaluate(loss=loss.detach())


def watched(run: Path, sinks: list[Sink | str] | None = None, num_steps: int = 60, **settings: Any) -> sonde.Run:
    training = Training()
    with sonde.watch(
        training.model, training.optimizer, run=run, sinks=sinks, config={"lr": 0.01}, **settings
    ) as watch:
        training.train(watch, num_steps)
    return sonde.load(run)


def test_tensorboard_holds_what_the_run_holds(tmp_path: Path) -> None:
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = watched(tmp_path / "run", ["tensorboard"])
    log = accumulators.EventAccumulator(str(tmp_path / "run" / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    names = {
        "Loss/train": "loss",
        "Loss/train_ema": "loss/ema",
        "Loss/validation": "val/loss",
        "Gradients/norm_global": "grad/norm",
        "Optimization/lr": "lr",
        "Parameters/norm_global": "weight/norm",
    }
    for theirs, ours in names.items():
        series = run.series(ours)
        points = log.Scalars(theirs)
        assert [point.step for point in points] == series.step.tolist(), theirs
        np.testing.assert_array_equal(np.array([point.value for point in points], np.float32), series.value)
        assert [point.wall_time for point in points] == series.time.tolist()
    assert "Gradients/per_layer/0.weight/norm" in log.Tags()["scalars"]
    assert "Gradients_Hist/per_layer/0.weight" in log.Tags()["tensors"]


@pytest.mark.filterwarnings("ignore")  # its own
def test_wandb_holds_what_the_run_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed")
    from .test_wandb import history

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("HOME", str(tmp_path))
    run = watched(tmp_path / "run", ["wandb"])
    series = run.series("loss")
    rows = [row for row in history(tmp_path / "run") if "Loss/train" in row]
    assert [row["global_step"] for row in rows] == series.step.tolist()
    np.testing.assert_array_equal(np.array([row["Loss/train"] for row in rows], np.float32), series.value)


@pytest.mark.filterwarnings("ignore")  # its own
def test_mlflow_holds_what_the_run_holds(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    from sonde.sinks.mlflow import MLflow

    address = f"sqlite:///{tmp_path}/mlflow.db"
    client = mlflow.MlflowClient(address)
    experiment = client.create_experiment("sonde", artifact_location=f"file://{tmp_path}/files")
    run = watched(tmp_path / "run", [MLflow(address)], num_steps=40)
    (found,) = client.search_runs([experiment])
    assert (found.info.status, found.data.params) == ("FINISHED", {"lr": "0.01"})
    for name, tag in {"Loss/train": "loss", "Optimization/lr": "lr", "Loss/validation": "val/loss"}.items():
        series = run.series(tag)
        points = sorted(client.get_metric_history(found.info.run_id, name), key=lambda point: point.step)
        assert [point.step for point in points] == series.step.tolist()
        np.testing.assert_array_equal(np.array([point.value for point in points], np.float32), series.value)


def test_a_sink_made_by_the_user_gets_every_row_of_the_run(tmp_path: Path) -> None:
    service = Service(selection=EVERYTHING)
    run = watched(tmp_path / "run", [service])
    sent = {
        (tag, item.step): value
        for item in service.items
        if isinstance(item, Frame) and item.columns.bins == 1
        for tag, value in zip(item.columns.tags, item.values.tolist(), strict=True)
    }
    for tag in run.tags():
        series = run.series(tag)
        given = np.array([sent[tag, step] for step in series.step.tolist()], np.float32)
        np.testing.assert_array_equal(given, series.value, tag)
    assert service.is_closed.is_set()


def test_sinks_come_from_the_configuration_and_arguments_go_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    monkeypatch.setenv("SONDE_CONFIG", "sonde.toml")
    (tmp_path / "sonde.toml").write_text('sinks = [{ sink = "tensorboard", logdir = "boards" }]\n')
    watched(tmp_path / "one", num_steps=3)
    assert list((tmp_path / "boards").iterdir())
    watched(tmp_path / "two", [], num_steps=3)
    assert len(list((tmp_path / "boards").iterdir())) == 1


def test_a_name_that_nobody_has_is_refused_before_anything_is_recorded(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"`sinks\[0\]` is refused: there is no sink 'tensorbord'; did you mean"):
        watched(tmp_path / "run", ["tensorbord"])
    assert not (tmp_path / "run").exists()


def test_a_dead_sink_is_one_warning_and_an_information_and_the_run_is_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def dead(batch: object) -> None:
        raise ConnectionError("gone")

    service = Service(dead)
    training = Training()
    watch = sonde.watch(
        training.model, training.optimizer, run=tmp_path / "run", sinks=[service], settings={"doctor": "thread"}
    )
    training.train(watch, 20)
    service.wait_for(lambda: service.num_attempts > 0)
    training.train(watch, 20)
    with pytest.raises(KeyboardInterrupt), watch:
        raise KeyboardInterrupt  # no time is left for it
    run = sonde.load(tmp_path / "run")
    assert len(run.series("loss").step) == 40
    assert [event.data["reason"] for event in run.events("monitor-problem")] == [
        "service cannot be written: ConnectionError: gone"
    ]
    assert [event.data["sink"] for event in run.events("sink-dropped")] == ["service"]
    assert len([record for record in caplog.records if "cannot be written" in record.getMessage()]) == 1
    assert "SYS006" in {finding.code for finding in watch.findings()}


def test_a_training_that_is_resumed_has_one_line(tmp_path: Path) -> None:
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    training = Training()
    with sonde.watch(training.model, training.optimizer, run=tmp_path / "run", sinks=["tensorboard"]) as watch:
        training.train(watch, 10)
        state = watch.state_dict()
        training.train(watch, 10)
        watch.load_state_dict(state)
        training.train(watch, 5)
    log = accumulators.EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    points = {point.step: point.value for point in log.Scalars("Loss/train")}
    series = sonde.load(tmp_path / "run").series("loss")
    assert sorted(points) == series.step.tolist() == list(range(1, 16))
    assert points == dict(zip(series.step.tolist(), series.value.tolist(), strict=True))
