"""Recorded runs, made once, and servers of them that listen on a port of their own."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.server.answers import Ask

import sonde
from sonde.core.causes import Cause
from sonde.core.findings import Evidence, Finding, Severity, Suspect
from sonde.core.frames import MISSING, Columns, Frame
from sonde.core.model_table import ModelTable, ModuleRow, ParameterRow
from sonde.core.parameter_kinds import Kind
from sonde.server.serving import Server, Settings
from sonde.sinks.bins import NUM_BINS
from sonde.store.writer import Writer

STEPS = 3000
LAYERS = ["embed.weight", "blocks.2.fc.weight", "blocks.10.fc.weight", "head.weight"]
"""In the order of the model, which is not that of their names."""
JUDGED = {"doctor": {"value": "process", "from": "default"}}

SPIKE = Finding(
    code="LOS002",
    name="loss-spike",
    severity=Severity.WARNING,
    first_step=700,
    last_step=720,
    open=True,
    where=("head.weight",),
    message="loss 8.2 after 2.1",
    evidence=(Evidence(tag="loss", step=700, value=8.2, expected=2.1),),
    causes=(Suspect(cause=Cause.LR_SPIKE, confidence=0.8, because="the rate rose"),),
)


def record_good(path: Path) -> None:
    """A run with all that a page can show: layers in the order of a model, histograms, findings, a hole and a NaN."""
    rng = np.random.default_rng(1)
    gradients = Columns("gradients", tuple(f"grad/rms@{name}" for name in sorted(LAYERS)))
    histograms = Columns("grad-histograms", ("grad/histogram@head.weight",), bins=NUM_BINS)
    modules = [ModuleRow(name="model", type="Net", depth=0)]
    modules += [ModuleRow(name=name.removesuffix(".weight"), type="Linear", depth=1) for name in LAYERS]
    parameters = [ParameterRow(name=name, kind=Kind.MATRIX, shape=(4, 4), dtype="float32") for name in LAYERS]
    config = {"lr": 0.1, "model": {"width": 8, "sizes": [1, 2]}, "note": "<script>alert(1)</script>"}
    with Writer(path, config=config, settings=JUDGED, flush_s=0.05) as writer:
        writer.describe(ModelTable(modules=tuple(modules), parameters=tuple(parameters)))
        for step in range(1, STEPS + 1):
            values = {"loss": 4 / np.sqrt(step) + 0.01 * rng.random(), "lr": min(step / 500, 1.0), "time/step": 0.25}
            if step == 1500:
                values["loss"] = float("nan")
            writer.log(values, step=step, time=1e9 + step / 4)
            if step % 10 == 0:
                row = np.arange(1, 5, dtype=np.float32) * step
                row[0] = np.inf if step == 1000 else MISSING if step == 2000 else row[0]
                writer.append(Frame(gradients, step, 1e9 + step / 4, row))
            if step % 500 == 0:
                counts = np.zeros(NUM_BINS, np.float32)
                counts[120:130] = step
                writer.append(Frame(histograms, step, 1e9 + step / 4, counts))
                writer.log({"val/loss": 5 / np.sqrt(step)}, step=step, table="evaluation", time=1e9 + step / 4)
        writer.event("not-measured", step=5, data={"tag": "attn/*", "reason": "there is no attention"})
        writer.event("finding", step=700, data=SPIKE.to_json())
        writer.event("finding-closed", step=800, data={"code": "LOS002", "first_step": 700})


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs that no test changes: `good`, `deep/er/plain`, which nobody judged, and `damaged`."""
    folder = tmp_path_factory.mktemp("runs")
    record_good(folder / "good")
    with sonde.record(folder / "deep" / "er" / "plain", config={"lr": 0.5}) as writer:
        for step in range(200):
            writer.log({"loss": 3 / (1 + step), "lr": 0.5}, step=step)
    (folder / "damaged").mkdir()
    (folder / "damaged" / "run.json").write_text("{")
    return folder


@pytest.fixture
def serve() -> Iterator[Callable[..., Ask]]:
    """Serves folders, each on a port that is free; what it gives asks for JSON."""
    with contextlib.ExitStack() as stack:

        def started(folder: Path, **settings: Any) -> Ask:
            server = Server(Settings(folder=folder, port=0, **settings))
            ready = threading.Event()
            thread = threading.Thread(target=server.run, args=(ready.set,))
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.stop)
            assert ready.wait(20)
            base, _, query = server.address.partition("?")
            client = stack.enter_context(httpx.Client(base_url=base, timeout=20))
            return Ask(client, token=query.removeprefix("token="))

        yield started


@pytest.fixture
def ask(serve: Callable[..., Ask], runs: Path) -> Ask:
    """A server of `runs`."""
    return serve(runs)
