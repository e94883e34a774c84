"""Everything is read back by MLflow's client, from a database of its own."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sonde.core.frames import MISSING, Columns, Detail, Frame
from sonde.core.records import Event
from sonde.sinks import bins
from sonde.sinks.feed import Feed
from sonde.sinks.sink import STARTED, Item

from .services import EVERYTHING, found, row

mlflow: Any = pytest.importorskip("mlflow", reason="mlflow is not installed")

from sonde.sinks.mlflow import MLflow  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow's own

STEP = Columns("step", ("loss", "lr", "val/loss"))
LAYERS = Columns("gradients", [f"grad/norm@blocks.{i}.weight[{i}]" for i in range(600)], Detail.LAYER)
SHAPES = Columns("shapes", ("grad/histogram@a.b",), Detail.DISTRIBUTION, bins=bins.NUM_BINS)
BEGAN = 1_700_000_000.25


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One for all: making its tables takes ten seconds."""
    folder = tmp_path_factory.mktemp("mlflow")
    address = f"sqlite:///{folder}/mlflow.db"
    mlflow.MlflowClient(address).create_experiment("sonde", artifact_location=f"file://{folder}/files")
    return address


def runs(address: str, name: str) -> list[Any]:
    client = mlflow.MlflowClient(address)
    experiment = client.get_experiment_by_name("sonde")
    return list(client.search_runs([experiment.experiment_id], f"run_name = '{name}'"))


def started(run: str, **config: object) -> Event:
    return Event(STARTED, BEGAN, None, {"run": run, "config": config})


def test_values_steps_times_findings_and_the_configuration_are_read_back(address: str, tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32)
    values[3, 0], values[4, 0], values[7, 1] = math.nan, math.inf, MISSING
    feed = Feed(MLflow(address, selection=EVERYTHING), gather_s=0.001)
    many = {f"knob {i}": i for i in range(150)}
    feed.event(started("runs/whole", lr=0.1, model={"depth": 2, "odd/key": "x"}, long="y" * 9000, **many))
    for step in range(50):
        feed.append(Frame(STEP, step, BEGAN + step, values[step]))
        if step % 10 == 0:
            feed.append(row(LAYERS, step, *(range(600)), time=BEGAN + step))
    feed.append(row(SHAPES, 49, *range(bins.NUM_BINS)))
    one = found(9)
    feed.event(Event("finding", BEGAN, 9, one.to_json()))
    feed.close(120)
    assert not feed.dropped

    client = mlflow.MlflowClient(address)
    (run,) = runs(address, "whole")
    loss = client.get_metric_history(run.info.run_id, "Loss/train")
    assert [point.step for point in loss] == list(range(50))
    assert [point.timestamp for point in loss] == [round((BEGAN + step) * 1000) for step in range(50)]
    assert math.isnan(loss[3].value)
    assert loss[4].value > 1e308
    expected = [float(value) for value in values[:, 0]]
    assert [point.value for point in loss[5:]] == expected[5:]
    assert len(client.get_metric_history(run.info.run_id, "Optimization/lr")) == 49
    layer = client.get_metric_history(run.info.run_id, "Gradients/per_layer/blocks.599.weight 5b.599 5d./norm")
    assert [(point.step, point.value) for point in layer] == [(step, 599) for step in range(0, 50, 10)]
    params = run.data.params
    assert (params["lr"], params["model.depth"], params["model.odd 2f.key"]) == ("0.1", "2", "x")
    assert len(params["long"]) == 6000
    assert params["knob 20.149"] == "149"
    assert run.data.tags["sonde.finding.GRD001"] == str(one)
    (file,) = client.list_artifacts(run.info.run_id, "sonde")
    assert str(one) in Path(client.download_artifacts(run.info.run_id, file.path, str(tmp_path))).read_text()
    assert run.info.status == "FINISHED"
    assert run.info.start_time == round(BEGAN * 1000)


def test_a_run_that_crashed_has_failed(address: str) -> None:
    sink = MLflow(address)
    sink.write([started("runs/crashed"), row(STEP, 1, 1, 2, 3)])
    sink.write([Event("exception", BEGAN, 1, {"reason": "ValueError"})])
    sink.close(10)
    (run,) = runs(address, "crashed")
    assert run.info.status == "FAILED"


def test_what_comes_twice_is_there_once(address: str) -> None:
    sink = MLflow(address)
    batch: list[Item] = [started("runs/twice", lr=1), row(STEP, 1, 1, 2, 3)]
    sink.write(batch)
    sink.write(batch)
    (run,) = runs(address, "twice")
    assert len(mlflow.MlflowClient(address).get_metric_history(run.info.run_id, "Loss/train")) == 1
    sink.close(10)


def test_a_run_of_the_users_own_is_logged_to_and_not_ended(address: str) -> None:
    client = mlflow.MlflowClient(address)
    mine = client.create_run(client.get_experiment_by_name("sonde").experiment_id, run_name="mine")
    client.log_param(mine.info.run_id, "lr", "7")
    sink = MLflow(address, run_id=mine.info.run_id)
    sink.write([started("runs/other", lr=1), row(STEP, 1, 1, 2, 3)])  # a parameter cannot be changed
    sink.close(10)
    (run,) = runs(address, "mine")
    assert run.info.status == "RUNNING"
    assert run.data.params == {"lr": "7"}
    assert run.data.metrics["Loss/train"] == 1


def test_a_server_that_is_not_there_is_waited_for_and_the_end_is_bounded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    feed = Feed(MLflow("http://127.0.0.1:9"), gather_s=0.001, retry_s=0.01)
    feed.append(row(STEP, 1, 1, 2, 3))
    feed.close(0.5)
    assert feed.dropped in ({"essential": 1}, {"unconfirmed": 1})
    assert "cannot be written" in caplog.text or "did not get everything" in caplog.text
