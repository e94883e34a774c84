"""Everything is read back by TensorBoard itself."""

import json
import math
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sonde.core.frames import MISSING, Columns, Detail, Frame
from sonde.core.records import Event
from sonde.sinks import bins
from sonde.sinks.feed import Feed
from sonde.sinks.sink import BRANCHED, STARTED
from sonde.sinks.tensorboard import TensorBoard
from sonde.store.importing import tensorboard as importing

from .services import EVERYTHING, found, row

event_accumulator = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator", reason="tensorboard is not installed"
)
tensor_util: Any = pytest.importorskip("tensorboard.util.tensor_util")
layout_pb2: Any = pytest.importorskip("tensorboard.plugins.custom_scalar.layout_pb2")

STEP = Columns("step", ("loss", "loss/ema", "lr", "memory/allocated"))
LAYERS = Columns("gradients", ("grad/norm@a.b", "grad/std@a.b"), Detail.LAYER)
SHAPES = Columns("shapes", ("grad/histogram@a.b",), Detail.DISTRIBUTION, bins=bins.NUM_BINS)
BEGAN = 1_700_000_000.25


def started(run: Path, **config: object) -> Event:
    return Event(STARTED, BEGAN, None, {"run": str(run), "config": config})


def read(folder: Path) -> Any:
    return event_accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0}).Reload()


def scalars(log: Any, name: str) -> list[tuple[int, float, float]]:
    return [(event.step, event.value, event.wall_time) for event in log.Scalars(name)]


def test_values_steps_and_times_are_read_back_as_they_were(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    values = random.standard_normal((200, 4)).astype(np.float32)
    values[3, 0], values[4, 0], values[5, 0] = math.nan, math.inf, -math.inf
    values[7, 1] = MISSING
    sink = TensorBoard(tmp_path, selection=EVERYTHING)
    feed = Feed(sink, gather_s=0.001)
    for step in range(200):
        feed.append(Frame(STEP, step, BEGAN + step / 8, values[step]))
        feed.append(row(LAYERS, step, step, 2 * step, time=BEGAN))
    feed.close(60)
    log = read(tmp_path)
    loss = scalars(log, "Loss/train")
    assert [step for step, _, _ in loss] == list(range(200))
    np.testing.assert_array_equal([value for _, value, _ in loss], values[:, 0])
    assert [when for _, _, when in loss] == [BEGAN + step / 8 for step in range(200)]
    assert [step for step, _, _ in scalars(log, "Loss/train_ema")] == [step for step in range(200) if step != 7]
    np.testing.assert_array_equal([value for _, value, _ in scalars(log, "Optimization/lr")], values[:, 2])
    megabytes = [value for _, value, _ in scalars(log, "Performance/memory_mb")]
    np.testing.assert_allclose(megabytes, values[:, 3] / 1e6, rtol=1e-6)
    assert scalars(log, "Gradients/per_layer/a.b/std")[5] == (5, 10, BEGAN)


def test_histograms_have_the_edges_and_counts_of_the_values(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="histograms are made with it")
    from sonde.kernels.histograms import NUM_BINS, SHIFT, coarse

    values = np.concatenate([np.random.default_rng(1).standard_normal(5000), np.zeros(7)]).astype(np.float32)
    fine = np.bincount(torch.from_numpy(values).numpy().view(np.uint32) >> SHIFT, minlength=NUM_BINS)
    sink = TensorBoard(tmp_path, selection=EVERYTHING)
    sink.write([Frame(SHAPES, 3, BEGAN, coarse(fine.astype(np.int32)).astype(np.float32))])
    sink.write([row(SHAPES, 4, *([0.0] * bins.NUM_BINS))])
    sink.close(1)
    event, empty = read(tmp_path).Tensors("Gradients_Hist/per_layer/a.b")
    table = tensor_util.make_ndarray(event.tensor_proto)
    assert (event.step, event.wall_time) == (3, BEGAN)
    assert table[:, 2].sum() == len(values)
    np.testing.assert_array_equal(table[1:, 0], table[:-1, 1])
    for left, right, count in table:
        inside = (values >= left) & (values < right) if left >= 0 else (values > left) & (values <= right)
        inside = (values > left) & (values < right) if left < 0 < right else inside
        assert count == inside.sum()
    assert tensor_util.make_ndarray(empty.tensor_proto).shape == (0, 3)


def test_findings_and_the_configuration_are_texts(tmp_path: Path) -> None:
    sink = TensorBoard()
    one = found(7)
    sink.write([started(tmp_path, lr=0.1, note=math.nan), Event("finding", BEGAN, 7, one.to_json())])
    sink.write([Event("finding", BEGAN, 8, {"somebody": "else's"}), Event("note", BEGAN, 8)])
    sink.close(1)
    log = read(tmp_path / "tensorboard")
    (config,) = log.Tensors("Config")
    assert json.loads(tensor_util.make_ndarray(config.tensor_proto)[0]) == {"lr": 0.1, "note": "NaN"}
    (told,) = log.Tensors("Findings/GRD001")
    text = tensor_util.make_ndarray(told.tensor_proto)[0].decode()
    assert told.step == 7
    assert "GRD001 exploding-gradients  critical  step 5  blocks.1.weight" in text
    assert one.message in text
    assert not [name for name in log.Tags()["tensors"] if name.startswith("Findings/") and name != "Findings/GRD001"]


def test_raw_and_smoothed_loss_are_laid_out_on_one_chart(tmp_path: Path) -> None:
    sink = TensorBoard(tmp_path)
    sink.write([row(STEP, 1, 1, 2, 3, 4)])
    sink.close(1)
    (event,) = read(tmp_path).Tensors("custom_scalars__config__")
    page = layout_pb2.Layout.FromString(tensor_util.make_ndarray(event.tensor_proto).item())
    assert list(page.category[0].chart[0].multiline.tag) == ["^Loss/train$", "^Loss/train_ema$"]


def test_a_run_that_goes_back_has_one_line(tmp_path: Path) -> None:
    sink = TensorBoard(tmp_path)
    sink.write([row(STEP, step, step, 0, 0, 0) for step in range(10)])
    sink.write([Event(BRANCHED, BEGAN, 5), *(row(STEP, step, 100 + step, 0, 0, 0) for step in range(5, 8))])
    sink.close(1)
    assert [value for _, value, _ in scalars(read(tmp_path), "Loss/train")] == [0, 1, 2, 3, 4, 105, 106, 107]


def test_our_own_import_reads_it_with_our_own_tags(tmp_path: Path) -> None:
    columns = Columns("all", ("loss", "val/loss", "grad/norm@a.b", "act/rms@a.b", "evaluation/train_val_gap"))
    sink = TensorBoard(tmp_path)
    sink.write([started(tmp_path, lr=0.1), row(columns, 4, 1, 2, 3, 4, 5)])
    sink.close(1)
    from sonde.store.importing.names import assign

    log = importing.read(str(tmp_path))
    entries = list(log.entries)
    tags = assign({entry.name: 1 for entry in entries}).tags  # type: ignore[union-attr]
    assert {tags[entry.name]: entry.value for entry in entries} == {  # type: ignore[union-attr]
        "loss": 1.0,
        "val/loss": 2.0,
        "grad/norm@a.b": 3.0,
        "act/rms@a.b": 4.0,
        "evaluation/train_val_gap": 5.0,
    }
    assert log.config == {"Config": {"lr": 0.1}}


def test_a_folder_that_cannot_be_written_is_waited_for(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.write_text("a file is in the way")
    sink = TensorBoard(place)
    feed = Feed(sink, gather_s=0.001, retry_s=0.001, longest_retry_s=0.01)
    feed.append(row(STEP, 1, 1, 2, 3, 4))
    with pytest.raises(OSError):  # noqa: PT012
        sink_alone = TensorBoard(place)
        sink_alone.write([row(STEP, 1, 1, 2, 3, 4)])
    place.unlink()
    feed.append(row(STEP, 2, 1, 2, 3, 4))
    feed.close(60)
    assert [step for step, _, _ in scalars(read(place), "Loss/train")] == [1, 2]


FULL = """
import resource, sys
from sonde.core.frames import Columns
from sonde.sinks.tensorboard import TensorBoard
from tests.sinks.services import row
step = Columns("step", ("loss",))
sink = TensorBoard(sys.argv[1])
sink.write([row(step, i, i) for i in range(100)])
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (6000, hard))  # as on a full disk
for _ in range(5):
    try:
        sink.write([row(step, i, i) for i in range(100, 2000)])
        raise SystemExit("it was written")
    except OSError:
        pass
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
sink.write([row(step, i, i) for i in range(100, 2000)])
sink.close(1)
"""


def test_after_a_full_disk_everything_is_there_in_two_files_and_nothing_was_printed(tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list(tmp_path.iterdir())) == 2
    points = {(step, value) for step, value, _ in scalars(read(tmp_path), "Loss/train")}
    assert sorted(points) == [(step, step) for step in range(2000)]


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def server(tmp_path: Path, port: int) -> Iterator[str]:
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(tmp_path), "--host", "127.0.0.1"]
    process = subprocess.Popen(
        [*command, "--port", str(port), "--reload_interval", "1", "--load_fast", "false"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    try:
        yield f"http://127.0.0.1:{port}/data/plugin/"
    finally:
        process.terminate()
        process.wait(30)


def ask(address: str, until: float) -> Any:
    """The answer of a server that is starting; something in it."""
    while True:
        try:
            with urllib.request.urlopen(address, timeout=10) as answer:
                if found := json.load(answer):
                    return found
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            pass
        assert time.monotonic() < until, f"no answer from {address}"
        time.sleep(0.2)


def test_tensorboard_itself_shows_the_tags_values_histograms_and_texts(tmp_path: Path, server: str) -> None:
    sink = TensorBoard(tmp_path / "demo", selection=EVERYTHING)
    counts = [0.0] * bins.NUM_BINS
    counts[225] = 12  # from 1 to 1.5
    sink.write(
        [
            started(tmp_path, lr=0.1),
            *(row(STEP, step, 10 - step, 10 - step, 0.1, 1e6, time=BEGAN + step) for step in range(5)),
            row(LAYERS, 4, 1, 2),
            row(SHAPES, 4, *counts),
            Event("finding", BEGAN, 4, found(4).to_json()),
        ]
    )
    sink.close(1)
    until = time.monotonic() + 120
    tags = ask(server + "scalars/tags", until)["demo"]
    assert set(tags) == {
        "Loss/train",
        "Loss/train_ema",
        "Optimization/lr",
        "Performance/memory_mb",
        "Gradients/per_layer/a.b/norm",
        "Gradients/per_layer/a.b/std",
    }
    points = ask(server + "scalars/scalars?" + urllib.parse.urlencode({"run": "demo", "tag": "Loss/train"}), until)
    assert points == [[BEGAN + step, step, 10 - step] for step in range(5)]
    where = urllib.parse.urlencode({"run": "demo", "tag": "Gradients_Hist/per_layer/a.b"})
    ((_, step, buckets),) = ask(server + "histograms/histograms?" + where, until)
    assert step == 4
    assert max(right for _, right, count in buckets if count) <= 1.5
    assert sum(count for _, _, count in buckets) == pytest.approx(12)
    assert set(ask(server + "text/tags", until)["demo"]) == {"Config", "Findings/GRD001"}
    layout = ask(server + "custom_scalars/layout", until)
    assert layout["category"][0]["title"] == "Loss"
