"""Whole runs and logs, small, that the fuzz damages."""

import json
import shutil
import sqlite3
import struct
from pathlib import Path

import numpy as np

from sonde.core.frames import Columns, Detail, Frame
from sonde.sinks.event_records import Scalars, record
from sonde.sinks.names import Name
from sonde.store.writer import Writer

GOLDEN = Path(__file__).parents[2] / "golden"
BEGAN = 1.7e9
NUM_STEPS, FORK_STEP = 10, 8  # the rules look at each of them in every case
RANK_STEPS = 70  # more than one bucket of a pyramid
LAYERS = Columns("layers", ("grad/norm@a.weight", "grad/norm@b.weight", "weight/norm@a.weight"), Detail.LAYER)
SHAPES = Columns("shapes", ("grad/shape@a.weight",), Detail.DISTRIBUTION, bins=3)

_FINDING = {
    "code": "GRD001",
    "name": "exploding-gradients",
    "severity": "warning",
    "first_step": 5,
    "last_step": 6,
    "open": True,
    "where": ["a.weight"],
    "message": "the global gradient norm is 40 times its median",
    "evidence": [{"tag": "grad/norm", "step": 5, "value": 40.0, "expected": 1.0}],
    "causes": [{"cause": "lr-too-high", "confidence": 0.8, "because": "update ratio rose"}],
    "remedies": [
        {"action": "lower-lr", "args": {"factor": 0.3}, "safety": "opt-in", "text": "lower the learning rate"}
    ],
}
_GROUP = {"lr": 0.01, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.0, "epsilon": 1e-08, "num_parameters": 4}
_EVENTS = (
    ("optimizer", 0, {"optimizer": "Adam", "num_groups": 1, "num_with_state": 0, "groups": [_GROUP]}),
    ("length", 0, {"total_steps": 100, "total_epochs": 2}),
    ("preflight", 2, {"check": "loss-kind", "where": [], "line": "train.py:11", "value": "nll", "classes": 2}),
    ("preflight", 3, {"check": "input-scale", "where": ["0"], "value": 1.2, "spread": 1.6, "std": 1.0, "mean": 0.0}),
    ("not-measured", 3, {"tag": "attn/*", "reason": "no attention"}),
    ("monitor-problem", 4, {"reason": "a probe failed", "times": 1}),
    ("skipped-step", 4, {"scale": 1024.0}),
    ("finding", 6, _FINDING),
    ("finding-closed", 7, {"code": "GRD001", "first_step": 5}),
    ("resumed", 7, {"num_with_state": 0, "num_before": 4}),
    ("note", 9, {"text": "lowered the learning rate"}),
)


def record_run(folder: Path) -> None:
    """A run of two sessions: the second went back, and its process died with rows in a log."""
    settings = {
        "budget": {"value": 0.01, "from": "default"},
        "rules.LOS002.warning": {"value": 9.0, "from": "argument"},
    }
    config = {"lr": 0.1, "betas": [0.9, 0.999], "model": {"depth": 2, "name": "mlp"}, "nan": float("nan")}
    with Writer(folder, name="victim", config=config, settings=settings) as writer:
        for step in range(NUM_STEPS):
            _row(writer, step)
            for kind, at, data in _EVENTS:
                if at == step:
                    writer.event(kind, step=step, data=data)
    with Writer(folder / "ranks" / "1", name="victim") as other:
        for step in range(RANK_STEPS):
            other.log({"loss": 1.0, "time/step": 0.1}, step=step, time=BEGAN + step)
    alive = folder.with_name(folder.name + "-alive")
    with Writer(alive := folder.rename(alive)) as writer:
        for step in range(FORK_STEP, NUM_STEPS):
            _row(writer, step)
        writer.flush()
        shutil.copytree(alive, folder)
    shutil.rmtree(alive)
    for state in (folder / "state.json", folder / "ranks" / "1" / "state.json"):
        # Else a run on another machine would count as live for half a minute.
        state.write_text(json.dumps(json.loads(state.read_text()) | {"updated": BEGAN}))


def _row(writer: Writer, step: int) -> None:
    when = BEGAN + step
    values = {"loss": 1 / (step + 1), "lr": 0.1, "grad/norm": 1.0 + step % 3, "update/ratio": 1e-3}
    if step == 3:
        values["loss"] = float("nan")
    writer.log(values, step=step, time=when)
    writer.append(Frame(LAYERS, step, when, np.full(LAYERS.width, step, np.float32)))
    if step % 3 == 0:
        writer.append(Frame(SHAPES, step, when, np.arange(SHAPES.width, dtype=np.float32)))
        writer.log({"val/loss": 1.0}, step=step, table="evaluation", time=when)


LOGS = {"tensorboard": "tensorboard", "csv": "csv/log.csv", "wandb": "wandb", "mlflow": "mlflow"}
"""What is imported, by the kind of log."""
OTHER_LOGS = {"wandb": "history", "mlflow": "sqlite/mlflow.db"}


def record_logs(folder: Path) -> None:
    """A log of every kind that can be imported."""
    (folder / "tensorboard").mkdir(parents=True)
    events = [VERSION, *(scalar_event(step, BEGAN + step) for step in range(12))]
    (folder / "tensorboard" / "events.out.tfevents.1700000000.host").write_bytes(b"".join(map(record, events)))
    table = folder / "csv" / "log.csv"
    table.parent.mkdir()
    rows = [f"{step},{1 / (step + 1)},{BEGAN + step},word" for step in range(12)]
    table.write_text("\n".join(["step,train_loss,timestamp,phase", *rows]) + "\n")
    shutil.copytree(GOLDEN / "wandb", folder / "wandb")
    runs = sorted((GOLDEN / "mlflow" / "mlruns" / "216828311708480141").glob("*/meta.yaml"))
    shutil.copytree(runs[0].parent, folder / "mlflow")
    history = folder / "history" / "run-1"
    history.mkdir(parents=True)
    lines = [f'{{"_step": {step}, "_timestamp": {BEGAN + step}, "loss": 0.5, "a": {{"b": 1}}}}' for step in range(6)]
    (history / "wandb-history.jsonl").write_text("\n".join(lines) + "\n")
    base = folder / "sqlite" / "mlflow.db"
    base.parent.mkdir()
    with sqlite3.connect(base) as connection:
        connection.executescript((GOLDEN / "mlflow" / "mlflow.sql").read_text())
        kept = connection.execute("SELECT run_uuid FROM runs LIMIT 1").fetchone()[0]
        connection.execute("DELETE FROM runs WHERE run_uuid != ?", (kept,))
    connection.close()


VERSION = b"\x09" + struct.pack("<d", BEGAN) + b"\x1a\x0dbrain.Event:2"
_SCALARS = Scalars((Name("Loss/train"), Name("lr")))


def scalar_event(step: int, time: float) -> bytes:
    """An event of TensorBoard with two numbers."""
    return _SCALARS.event(step, time, np.array([1 / (step + 1), 0.1], np.float32))
