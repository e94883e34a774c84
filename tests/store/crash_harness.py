"""Kills recording processes at random moments and reads what they left: `crash_harness.py FOLDER KILLS SEED`.

Each round forks a child that records into a run with tiny flushes and segments, so that most of its life is spent
inside a flush, a folding or a merge, and sends it SIGKILL after a random time. Two rounds of three continue the run of
the round before. The child writes the last step of every flush that returned to a pipe: rows up to there are
*acknowledged*. The parent, and a reader that polls during the child's life, must read all of them, equal to what was
written.
"""

import json
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

import numpy as np

import sonde
from sonde.core.errors import RunNotFound, TagNotFound
from sonde.core.frames import Columns, Detail, Frame

WIDE = Columns("layers", tuple(f"grad/norm@layer.{i}" for i in range(40)), Detail.LAYER)
HISTOGRAM = Columns("shapes", ("grad/histogram@a", "grad/histogram@b"), Detail.DISTRIBUTION, bins=5)


def loss(step: int) -> np.float32:
    return np.float32(np.nan) if step % 97 == 13 else np.float32(1.0) / np.float32(step + 1)


def layers(step: int) -> np.ndarray:
    return np.arange(40, dtype=np.float32) * np.float32(step)


def child(run: Path, first: int, acknowledged: int, seed: int) -> None:
    rng = random.Random(seed)
    writer = sonde.Writer(run, flush_s=0.002, segment_rows=rng.choice([3, 10, 40]))
    step = first
    while True:
        for _ in range(rng.randint(1, 30)):
            values = {"loss": float(loss(step)), "lr": 0.1}
            if step % 400 == 399:
                values[f"extra/{step}"] = 1.0  # a column that appears in the middle
            writer.log(values, step=step)
            writer.append(Frame(WIDE, step, float(step), layers(step)))
            writer.append(Frame(HISTOGRAM, step, float(step), np.arange(10, dtype=np.float32) + step))
            step += 1
        writer.event("note", step=step - 1)
        if writer.flush():
            os.write(acknowledged, f"{step - 1}\n".encode())


def check(run: Path, last: int) -> None:
    """All rows up to `last` are there and equal."""
    record = sonde.load(run)
    assert not record.problems, record.problems
    series = record.series("loss")
    assert np.array_equal(series.step, np.arange(len(series.step))), "steps are missing or twice"
    assert len(series.step) > last, f"read {len(series.step)} rows, {last + 1} were acknowledged"
    expected = np.array([loss(step) for step in series.step], np.float32)
    assert np.array_equal(series.value, expected, equal_nan=True), "the loss is not what was recorded"
    wide = record.series("grad/norm@layer.17")
    assert len(wide.step) > last
    assert np.array_equal(wide.value, 17 * wide.step.astype(np.float32)), "a layer is not what was recorded"
    steps, counts, _ = record.histogram("grad/histogram@b")
    assert len(steps) > last
    assert np.array_equal(counts, steps[:, None].astype(np.float32) + np.arange(5, 10, dtype=np.float32))
    window = record.window("loss", points=50)
    assert int((window.finite + window.nonfinite).sum()) == len(series.step), "the zoom lost points"
    assert record.last()["loss"].step == series.step[-1]
    assert max((event.step or 0 for event in record.events()), default=0) >= last
    assert len(record.table(["loss", "grad/norm@layer.3"])) >= len(series.step)


def poll(run: Path) -> tuple[int, int]:
    """Branches and rows that a reader sees of a live run; it must never raise."""
    try:
        record = sonde.load(run)
        record.last()
        record.window("loss", points=20)
        series = record.series("loss", branch=(branch := record.branches[-1].number))
    except (RunNotFound, TagNotFound):  # nothing there yet
        return 0, 0
    assert not record.problems, record.problems
    assert np.array_equal(series.step, np.arange(len(series.step))), "a reader saw a hole"
    return branch, len(series.step)


def main(folder: Path, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    rows = in_write = continued = 0
    last = -1
    run = folder / "run-0"
    for round_ in range(kills):
        if round_ % 3 == 0:
            run, last = folder / f"run-{round_}", -1
        else:
            continued += 1
        first = last + 1  # rows behind the last acknowledged one may have reached the disk: then this is a new branch
        read_end, write_end = os.pipe()
        process = os.fork()
        if process == 0:
            os.close(read_end)
            try:
                child(run, first, write_end, rng.randrange(1 << 30))
            finally:
                traceback.print_exc()  # what it ended by is what the failure is about
                os._exit(1)
        os.close(write_end)
        deadline = time.monotonic() + rng.uniform(0.03, 0.6)
        seen = (0, 0)
        while time.monotonic() < deadline:
            now = poll(run)
            assert now >= seen, "a reader saw rows disappear"
            seen = now
        os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
        assert os.WIFSIGNALED(status), f"the recording process ended by itself (status {status})"
        with os.fdopen(read_end) as pipe:
            acknowledged = [int(line) for line in pipe.read().split("\n")[:-1]]
        last = acknowledged[-1] if acknowledged else last
        leftovers = [path for path in run.rglob("*") if path.name.endswith(".tmp")]
        in_write += bool(leftovers)
        if last >= 0:
            check(run, last)
            rows += last + 1
    print(json.dumps({"kills": kills, "inside_a_folding": in_write, "continued": continued, "rows": rows}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
