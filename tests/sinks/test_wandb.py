"""Everything is read back from W&B's offline folder, by its own message types."""

import json
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sonde.core.frames import MISSING, Columns, Detail, Frame
from sonde.core.records import Event
from sonde.sinks import bins
from sonde.sinks.feed import Feed
from sonde.sinks.sink import STARTED
from sonde.store.importing import wandb as importing

from .services import EVERYTHING, found, row

wandb: Any = pytest.importorskip("wandb", reason="wandb is not installed")
messages: Any = pytest.importorskip("wandb.proto.wandb_internal_pb2")

from sonde.sinks.wandb import WandB  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # W&B's own

STEP = Columns("step", ("loss", "lr", "val/loss"))
LAYERS = Columns("gradients", ("grad/norm@a.b", "act/rms@a.b"), Detail.LAYER)
SHAPES = Columns("shapes", ("grad/histogram@a.b",), Detail.DISTRIBUTION, bins=bins.NUM_BINS)
BEGAN = 1_700_000_000.25


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("HOME", str(tmp_path))


def records(folder: Path) -> Iterator[Any]:
    """The messages of the one run in a folder."""
    wandb.teardown()  # finishing an offline run does not wait for its last bytes
    (file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    content, place, whole = file.read_bytes(), 7, b""
    while place + 7 <= len(content):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        _, length, kind = struct.unpack_from("<IHB", content, place)
        whole += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield messages.Record.FromString(whole)
            whole = b""


def history(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for record in records(folder):
        if record.HasField("history"):
            rows.append({})
            for item in record.history.item:
                *outer, last = item.nested_key or [item.key]
                into = rows[-1]
                for key in outer:
                    into = into.setdefault(key, {})
                into[last] = json.loads(item.value_json)
    return rows


def started(run: Path, **config: object) -> Event:
    return Event(STARTED, BEGAN, None, {"run": str(run), "config": config})


def test_values_steps_times_histograms_findings_and_the_configuration_are_read_back(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32)
    values[3, 0], values[4, 0], values[7, 1] = math.nan, math.inf, MISSING
    counts = np.zeros(bins.NUM_BINS, np.float32)
    counts[225:227] = 12, 5
    feed = Feed(WandB(selection=EVERYTHING), gather_s=0.001)
    feed.event(started(tmp_path, lr=0.1, deep={"depth": 2}, odd=math.nan))
    for step in range(50):
        feed.append(Frame(STEP, step, BEGAN + step, values[step]))
        feed.append(row(LAYERS, step, step, 2 * step, time=BEGAN + step))
    feed.append(Frame(SHAPES, 49, BEGAN, counts))
    one = found(9)
    feed.event(Event("finding", BEGAN, 9, one.to_json()))
    feed.close(120)
    assert not feed.dropped
    assert wandb.run is None  # the user's own is not touched

    rows = [entry for entry in history(tmp_path) if "Loss/train" in entry]
    assert [entry["global_step"] for entry in rows] == list(range(50))  # one call a step
    assert [entry["_timestamp"] for entry in rows[:49]] == [BEGAN + step for step in range(49)]
    loss = np.array([float(entry["Loss/train"]) for entry in rows])
    np.testing.assert_array_equal(loss, values[:, 0].astype(np.float64))
    assert "Optimization/lr" not in rows[7]
    assert rows[8]["Gradients/per_layer/a.b/norm"] == 8
    assert rows[8]["act/rms:a.b"] == 16
    shape = rows[49]["Gradients_Hist/per_layer/a.b"]
    assert shape["values"] == [12, 5]
    assert shape["bins"] == [1, 1.5, 2]

    (alert,) = [record.alert for record in records(tmp_path) if record.HasField("alert")]
    assert (alert.title, alert.text, alert.level) == ("GRD001 exploding-gradients", str(one), "ERROR")
    (table,) = tmp_path.glob("wandb/offline-run-*/files/media/table/*.json")
    content = json.loads(table.read_text())
    assert content["data"][0][:2] == ["GRD001", "exploding-gradients"]
    axes = {record.metric.glob_name or record.metric.name for record in records(tmp_path) if record.HasField("metric")}
    assert {"Loss/*", "Gradients/*"} <= axes

    log = importing.read(str(tmp_path / "wandb"))
    again = [entry for entry in log.entries if getattr(entry, "name", "") == "Loss/train"]
    assert [entry.step for entry in again] == list(range(50))
    assert log.config["lr"] == 0.1
    assert log.config["deep"] == {"depth": 2}


def test_two_values_at_a_step_are_two_calls(tmp_path: Path) -> None:
    micro = Columns("micro", ("loss/micro",))
    sink = WandB(selection=EVERYTHING)
    sink.write([started(tmp_path), row(micro, 1, 1), row(micro, 1, 2), row(STEP, 1, 3, 4, 5)])
    sink.close(60)
    rows = [entry for entry in history(tmp_path) if "loss/micro" in entry]
    assert [(entry["loss/micro"], entry.get("Loss/train")) for entry in rows] == [(1, None), (2, 3)]


def test_a_run_of_the_users_own_is_logged_to_and_not_finished(tmp_path: Path) -> None:
    mine = wandb.init(dir=str(tmp_path), project="mine", reinit="create_new", settings=wandb.Settings(silent=True))
    sink = WandB(run=mine)
    sink.write([started(tmp_path), row(STEP, 1, 3, 4, 5)])
    sink.close(60)
    mine.log({"accuracy": 0.5})
    mine.finish()
    rows = history(tmp_path)
    assert [entry.get("Loss/train") for entry in rows] == [3, None]
    assert rows[1]["accuracy"] == 0.5


def test_a_run_that_somebody_finished_goes_on_in_another_session(tmp_path: Path) -> None:
    sink = WandB()
    sink.write([started(tmp_path), row(STEP, 1, 3, 4, 5)])
    wandb.teardown()  # ends every run of the process
    with pytest.raises(Exception, match=r"teardown|finished"):
        sink.write([row(STEP, 2, 6, 7, 8)])
    sink.write([row(STEP, 2, 6, 7, 8)])
    sink.close(60)
    assert len(list(tmp_path.glob("wandb/offline-run-*"))) == 2


def test_without_a_key_it_asks_nobody_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb.teardown()
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    sink = WandB()
    with pytest.raises(ConnectionError, match="no API key"):
        sink.write([started(tmp_path), row(STEP, 1, 3, 4, 5)])
    sink.close(1)
    wandb.teardown()
