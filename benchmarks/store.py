"""Speed and size of the run store, against torch's SummaryWriter and TensorBoard's EventAccumulator, in one process.

Usage: python benchmarks/store.py [--quick] [--full] [--only NAME] [--dir FOLDER]

Prints the Markdown of `benchmarks/RESULTS.md`; each figure stands beside its bar.

The data are *recorded-like series* (`recorded_like`): the loss and learning rate, and five statistics of each of 100
layers: gradient norms (log-normal noise, σ = 0.25, around a trend that decays like 1/√t), weight norms (slow random
drifts), update ratios (learning rate × gradient norm / weight norm), means of gradients (zero-mean, scaled by the norm)
and the share of dead units (multiples of 1/4096). One value in 10,000 is NaN. Seeded, float32.
"""

import argparse
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from measure import (
    Figure,
    Heartbeat,
    Memory,
    Queue,
    Wait,
    middle,
    percentile,
    print_figures,
    print_machine,
    print_table,
    seconds,
    size_of,
)

import sonde
from sonde.core.frames import Columns, Detail, Frame
from sonde.store.runs import list_runs

NUM_TAGS, NUM_STEPS, FLUSH_STEPS = 500, 4000, 100
NUM_TENSORS = 100_000
PROJECTIONS = ("up", "gate", "down")
STATISTICS = ("norm", "mean", "std", "max", "zeros", "weight", "update", "ratio", "skew", "kurtosis")


def recorded_like(num_tags: int, num_steps: int) -> tuple[tuple[str, ...], np.ndarray]:
    """Tags and values (a row a step) as a training would record them; see the top of this file."""
    rng = np.random.default_rng(7)
    num_layers = -(-(num_tags - 2) // 5)
    step = np.arange(num_steps, dtype=np.float64)[:, None]
    lr = 3e-4 * np.minimum(1, (step + 1) / 100) * (0.55 + 0.45 * np.cos(np.pi * step / num_steps))
    loss = 2 + 8 / np.sqrt(step + 1) + 0.05 * rng.standard_normal((num_steps, 1))
    shape = (num_steps, num_layers)
    scale = rng.lognormal(0, 1, num_layers)
    grad = scale * (0.1 + 1 / np.sqrt(step + 1)) * rng.lognormal(0, 0.25, shape)
    weight = 10 * scale * np.exp(np.cumsum(1e-4 * rng.standard_normal(shape), axis=0))
    ratio = lr * grad / weight
    mean = 1e-3 * grad * rng.standard_normal(shape)
    dead = rng.binomial(4096, 0.1, shape) / 4096
    layers = np.stack([grad, weight, ratio, mean, dead], axis=2).reshape(num_steps, -1)
    values = np.concatenate([loss, lr, layers], axis=1)[:, :num_tags].astype(np.float32)
    values[rng.random(values.shape) < 1e-4] = np.nan
    names = ("grad/norm", "weight/norm", "update/ratio", "grad/mean", "act/dead")
    tags = ["loss", "lr", *(f"{name}@blocks.{i}.mlp.weight" for i in range(num_layers) for name in names)]
    return tuple(tags[:num_tags]), values


class Bench:
    """The sections, each a method, and the runs that several of them read, made once."""

    def __init__(self, folder: Path, *, quick: bool, full: bool) -> None:
        self.folder, self.quick = folder, quick
        self.num_steps = 400 if quick else NUM_STEPS
        # SummaryWriter takes minutes for two million points: a share of the steps is measured and scaled up.
        self.share = 1.0 if full else 0.25 if quick else 0.1
        self.tags, self.values = recorded_like(NUM_TAGS, self.num_steps)
        self.num_points = NUM_TAGS * self.num_steps

    # Runs and event files.

    def record(self, name: str, **options) -> tuple[sonde.Writer, list[float], float]:
        """The series recorded in a tight loop: the writer (still open), what each append took, and all together."""
        start = time.perf_counter()
        writer = sonde.Writer(self.folder / name, **options)
        columns = Columns("layers", self.tags)
        waits = []
        for step, row in enumerate(self.values):
            frame = Frame(columns, step, time.time(), row)
            before = time.perf_counter()
            writer.append(frame)
            waits.append(time.perf_counter() - before)
            if (step + 1) % FLUSH_STEPS == 0:
                assert writer.flush()
        return writer, waits, time.perf_counter() - start

    @functools.cached_property
    def closed(self) -> tuple[Path, list[float], float, float]:
        """A closed run: its folder, the waits, and the seconds of recording and of closing."""
        writer, waits, took = self.record("closed")
        (closing,) = seconds(writer.close)
        return writer.path, waits, took, closing

    @functools.cached_property
    def events(self) -> tuple[Path, float]:
        """TensorBoard event files of a share of the steps, and what SummaryWriter took, scaled to all steps."""
        from torch.utils.tensorboard import SummaryWriter

        path, num_steps = self.folder / "events", round(self.num_steps * self.share)

        def write() -> None:
            with SummaryWriter(str(path)) as writer:
                for step in range(num_steps):
                    for tag, value in zip(self.tags, self.values[step].tolist(), strict=True):
                        writer.add_scalar(tag, value, step)
                    if (step + 1) % FLUSH_STEPS == 0:
                        writer.flush()

        (took,) = seconds(write)
        return path, took / self.share

    @property
    def scaled(self) -> str:
        return "all steps" if self.share == 1 else f"measured on {self.share:.0%} of the steps, scaled linearly"

    # Sections.

    def write(self) -> None:
        """Write and size."""
        path, _, took, closing = self.closed
        tail, _, _ = self.record("tail", segment_rows=10**9)
        tail_bytes = size_of(tail.path, "rows-*.log")
        tail.close()
        segment_bytes = size_of(path / "tables", "*.parquet", "*.pyramid", "segment.json")
        assert not size_of(path, "rows-*.log")
        events, tensorboard = self.events
        event_bytes = size_of(events, "*") / (self.num_points * self.share)
        total = took + closing
        print_figures(
            f"Write: {NUM_TAGS} tags × {self.num_steps} steps, flush every {FLUSH_STEPS} steps",
            [
                Figure(
                    what="Sonde",
                    value=total,
                    unit="s",
                    note=f"opening, appending, flushing {took:.2f} s, closing and folding {closing:.2f} s",
                ),
                Figure(what="SummaryWriter", value=tensorboard, unit="s", note=self.scaled),
                Figure(what="SummaryWriter ÷ Sonde", value=tensorboard / total, unit="×", at_least=100),
                Figure(
                    what="bytes a point, tail",
                    value=tail_bytes / self.num_points,
                    at_most=6,
                    note="logs, before folding",
                ),
                Figure(
                    what="bytes a point, segments",
                    value=segment_bytes / self.num_points,
                    at_most=4,
                    note="Parquet, pyramids and segment.json",
                ),
                Figure(what="bytes a point, SummaryWriter", value=event_bytes),
            ],
        )

    def wait(self) -> None:
        """What the calling thread waits for a row."""
        matrix = np.ones((256, 256), np.float32)
        while middle(seconds(functools.partial(np.matmul, matrix, matrix), times=20)) < 1e-3:
            matrix = np.ones((len(matrix) + 32, len(matrix) + 32), np.float32)
        columns, queue = Columns("layers", self.tags), Queue(threading.current_thread())

        def busy(take: Callable[[Frame], None]) -> tuple[list[float], list[float]]:
            """What each row takes in a loop that computes for a millisecond a row: in all, and less the queue."""
            waits, own = [], []
            for step in range(1000 if self.quick else 12_000):
                matrix @ matrix
                frame = Frame(columns, step, time.time(), self.values[step % self.num_steps])
                queued, before = queue.seconds(), time.perf_counter()
                take(frame)
                waits.append(time.perf_counter() - before)
                own.append(max(0.0, waits[-1] - (queue.seconds() - queued)))
            return waits, own

        copy = np.empty(NUM_TAGS, np.float32)
        control = busy(lambda frame: np.copyto(copy, frame.values))
        with sonde.Writer(self.folder / "busy") as writer:
            busy_waits = busy(writer.append)
        rows = []
        for name, (waits, own), bars in (
            ("tight loop, `flush()` every 100 rows", (self.closed[1], []), (2, 20)),
            ("1 ms of matrix products a row", busy_waits, (2, 20)),
            ("the same, the row copied and no Sonde", control, (None, None)),
        ):
            told = [f"{percentile(waits, percent) * 1e6:,.0f} µs" for percent in (50, 99)]
            for value, bar in zip((percentile(waits, 99.9), max(waits)), bars, strict=True):
                told.append(f"{value * 1e3:.3f} ms {Figure(what='', value=value * 1e3, at_most=bar).verdict}".strip())
            told.append(f"{percentile(own, 99.9) * 1e3:.3f} / {max(own) * 1e3:.3f} ms" if own else "")
            rows.append([name, f"{len(waits):,}", *told])
        print_table(
            f"What the calling thread waits for a row of {NUM_TAGS}",
            (
                "loop",
                "rows",
                "p50",
                "p99",
                "p99.9 (≤ 2 ms)",
                "max (≤ 20 ms)",
                "p99.9 / max less the kernel's queue for a core",
            ),
            rows,
        )

    def read(self) -> None:
        """Read one series and the last values."""
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        closed = self.closed[0]
        events, _ = self.events
        live, _, _ = self.record("live", segment_rows=10**9)

        def accumulate() -> None:
            accumulator = EventAccumulator(str(events), size_guidance={"scalars": 0})
            accumulator.Reload()
            assert len(accumulator.Scalars(self.tags[7])) == round(self.num_steps * self.share)

        tensorboard = seconds(accumulate)[0] / self.share
        wanted = self.tags[::7]

        def one(path: Path) -> list[float]:
            took = []
            for tag in wanted:
                took += seconds(lambda tag=tag: sonde.load(path).series(tag))
            return took

        for path in (closed, live.path):
            for tag in wanted:
                found = sonde.load(path).series(tag)
                np.testing.assert_array_equal(found.value, self.values[:, self.tags.index(tag)])
        first = [self._first_read(path) for path in (closed, live.path)]
        from_segments, from_logs = one(closed), one(live.path)
        last = [seconds(lambda path=path: sonde.load(path).last(), times=20) for path in (closed, live.path)]
        assert len(sonde.load(live.path).last()) == NUM_TAGS
        live.close()
        slowest = max(middle(from_segments), middle(from_logs))
        print_figures(
            f"Read: {NUM_TAGS} tags × {self.num_steps} steps; a new `sonde.load` for every question",
            [
                Figure(
                    what="EventAccumulator, one series",
                    value=tensorboard,
                    unit="s",
                    note=f"Reload and Scalars, {self.scaled}",
                ),
                Figure(
                    what="EventAccumulator ÷ Sonde",
                    value=tensorboard / slowest,
                    unit="×",
                    at_least=1000,
                    note="the slower of the next two",
                ),
                _milliseconds("one series, closed run", from_segments, at_most=10),
                _milliseconds("one series, live tail", from_logs, at_most=10, note=f"one log of {self.num_steps} rows"),
                Figure(
                    what="the first in a new process, closed",
                    value=first[0],
                    unit="ms",
                    at_most=10,
                    note="median of 5; imports not counted, nothing of the libraries loaded yet",
                ),
                Figure(
                    what="the first in a new process, live",
                    value=first[1],
                    unit="ms",
                    at_most=10,
                    note="median of 5; imports not counted, nothing of the libraries loaded yet",
                ),
                _milliseconds("last values of all tags, closed run", last[0], at_most=20),
                _milliseconds("last values of all tags, live tail", last[1], at_most=20),
            ],
        )

    def _first_read(self, path: Path) -> float:
        code = (
            "import sys, time, sonde, sonde.store.reader, pyarrow.parquet\n"
            "start = time.perf_counter()\n"
            "sonde.load(sys.argv[1]).series(sys.argv[2])\n"
            "print((time.perf_counter() - start) * 1e3)"
        )
        command = [sys.executable, "-c", code, str(path), self.tags[9]]
        return middle([float(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(5)])

    def window(self) -> None:
        """A window of a very long series."""
        num_steps = 300_000 if self.quick else 10_000_000
        columns = Columns("step", ("loss",))
        values = (2 + np.random.default_rng(7).standard_normal(num_steps).astype(np.float32)).reshape(-1, 1)
        start = time.perf_counter()
        writer = sonde.Writer(self.folder / "long")
        for step in range(num_steps):
            writer.append(Frame(columns, step, 1.7e9 + step, values[step]))
        appended = time.perf_counter() - start
        writer.close()
        took = time.perf_counter() - start
        places = ((None, None), (num_steps // 3, num_steps // 2), (num_steps // 2, num_steps // 2 + 20_000))

        def ask(low: int | None, high: int | None) -> list[float]:
            return seconds(lambda: sonde.load(writer.path).window("loss", low, high, 2000), times=20)

        found = sonde.load(writer.path).window("loss", points=2000)
        assert int((found.finite + found.nonfinite).sum()) == num_steps
        assert found.max.max() == values.max()
        whole, part, close_up = (ask(*place) for place in places)
        logs = len(list(writer.path.rglob("rows-*.log")))
        segments = len(list(writer.path.rglob("seg-*")))
        print_figures(
            f"`run.window` of 2,000 points from {num_steps:,} steps; a new `sonde.load` for every question",
            [
                _milliseconds("the whole series", whole, at_most=50, note=f"{segments} segments, {logs} logs"),
                _milliseconds("a sixth of it", part, at_most=50),
                _milliseconds("20,000 steps in its middle", close_up, at_most=50),
                Figure(what="recording it, appends", value=num_steps / appended, unit="rows/s"),
                Figure(what="recording it, with closing", value=num_steps / took, unit="rows/s", note=f"{took:.1f} s"),
            ],
        )

    def listing(self) -> None:
        """List many runs."""
        num_runs = 100 if self.quick else 1000
        root = self.folder / "runs"
        with sonde.Writer(root / "run-0", config={f"option_{i}": i for i in range(50)}) as writer:
            for step in range(100):
                writer.log({"loss": 1 / (step + 1), "lr": 1e-3}, step=step)
        for i in range(1, num_runs):
            shutil.copytree(root / "run-0", root / f"run-{i}")
        assert len(list_runs(root)) == num_runs
        took = seconds(lambda: list_runs(root), times=5)
        print_figures(
            f"Listing {num_runs:,} runs (copies of one)",
            [Figure(what="`list_runs`", value=middle(took), unit="s", at_most=1, note="median of 5")],
        )

    def wide(self) -> None:
        """A very large model: a million columns; `flush()` after each row, so that none is dropped, then folded."""
        num_tensors = 10_000 if self.quick else NUM_TENSORS
        num_rows = 16
        tags = tuple(
            f"grad/{name}@model.layers.{i // 768}.mlp.experts.{i // 3 % 256}.{PROJECTIONS[i % 3]}_proj.weight"
            for i in range(num_tensors)
            for name in STATISTICS
        )
        columns = Columns("tensors", tags, Detail.LAYER)
        base = np.random.default_rng(7).lognormal(0, 1, len(tags)).astype(np.float32)
        rows = [base * np.float32(1 + step) for step in range(num_rows)]
        wanted = [int(i) for i in np.linspace(0, len(tags) - 1, 30)]
        heart, memory = Heartbeat(), Memory()
        start = time.perf_counter()
        writer = sonde.Writer(self.folder / "wide", segment_rows=num_rows)
        heart.watch("sonde-")
        folder = writer.path / "tables" / columns.table / "b0"
        appends, flushes, holds = [], [], []

        def record(step: int) -> None:
            frame = Frame(columns, step, 1.7e9 + step, rows[step])
            appends.extend(seconds(lambda: writer.append(frame)))
            heart.longest()  # what the caller itself did is no flush
            flushes.extend(seconds(writer.flush))
            holds.append(heart.longest())

        for step in range(num_rows - 1):  # the last row makes the log long enough to be folded
            record(step)
        flush_peak = memory.peak_mb()
        from_logs = self._read_wide(writer.path, tags, wanted, rows[:-1])
        started = time.perf_counter()
        record(num_rows - 1)
        while any(name.endswith(".log") for name in os.listdir(folder)):
            time.sleep(0.05)
        folding = time.perf_counter() - started
        fold_hold = _longer(heart.longest(), holds.pop())
        writer.close()
        took = time.perf_counter() - start
        peak = memory.peak_mb()
        heart.stop()
        from_segments = self._read_wide(writer.path, tags, wanted, rows)
        dropped = sonde.load(writer.path).state.dropped
        assert not dropped, dropped
        print_figures(
            f"A very large model: {num_tensors:,} tensors × {len(STATISTICS)} statistics = {len(tags):,} columns, "
            f"{num_rows} rows of {4 * len(tags) / 1e6:.1f} MB",
            [
                _milliseconds("one series, from the log", from_logs, at_most=50, note="30 tags from first to last"),
                _milliseconds("one series, from segments", from_segments, at_most=50, note="the same tags"),
                Figure(
                    what="interpreter lock held, first flush",
                    value=holds[0].ms,
                    unit="ms",
                    at_most=5,
                    note=f"{_unqueued(holds[0])}; it also writes the names of the columns, {flushes[0]:.2f} s",
                ),
                Figure(
                    what="interpreter lock held, later flushes",
                    value=_longer(*holds[1:]).ms,
                    unit="ms",
                    at_most=5,
                    note=f"{_unqueued(_longer(*holds[1:]))}; the longest of {len(holds) - 1}, "
                    f"a flush takes {middle(flushes[1:]) * 1e3:.0f} ms",
                ),
                Figure(
                    what="interpreter lock held, folding",
                    value=fold_hold.ms,
                    unit="ms",
                    at_most=5,
                    note=f"{_unqueued(fold_hold)}; all rows, {folding:.1f} s",
                ),
                Figure(
                    what="the same, nothing running",
                    value=heart.idle.ms,
                    unit="ms",
                    note=f"{_unqueued(heart.idle)}; in 2 s",
                ),
                Figure(
                    what="peak extra memory",
                    value=peak,
                    unit="MB",
                    at_most=300,
                    note=f"writing, reading and folding; {flush_peak:.0f} MB before reading and folding; "
                    "without the caller's tags and rows, which are there before",
                ),
                Figure(what="append, the first", value=appends[0] * 1e3, unit="ms"),
                Figure(
                    what="append, later",
                    value=middle(appends[1:]) * 1e3,
                    unit="ms",
                    note=f"median; slowest {max(appends[1:]) * 1e3:.1f} ms",
                ),
                Figure(what="opening, recording, folding, closing", value=took, unit="s"),
            ],
        )

    def _read_wide(self, path: Path, tags: Sequence[str], wanted: list[int], rows: list[np.ndarray]) -> list[float]:
        took = []
        for i in wanted:
            start = time.perf_counter()
            found = sonde.load(path).series(tags[i])
            took.append(time.perf_counter() - start)
            assert found.value.tolist() == [float(row[i]) for row in rows]
        return took

    def start(self) -> None:
        """Import and command line."""
        program = Path(sys.executable).with_name("sonde")
        figures = []
        for what, command in (
            ('`python -c "import sonde"`', [sys.executable, "-c", "import sonde"]),
            ("`sonde --help`", [str(program), "--help"]),
            ("`python -c pass`", [sys.executable, "-c", "pass"]),
        ):
            took = seconds(lambda command=command: subprocess.run(command, check=True, capture_output=True), times=5)
            bar = None if "pass" in what else 0.3
            figures.append(
                Figure(
                    what=what, value=middle(took), unit="s", at_most=bar, note=f"median of 5; best {min(took):.3f} s"
                )
            )
        print_figures("Start", figures)


def _longer(*waits: Wait) -> Wait:
    return Wait(*(max(values) for values in zip(*waits, strict=True)))


def _unqueued(wait: Wait) -> str:
    return f"{wait.unqueued_ms:.2f} ms less the kernel's queue for a core"


def _milliseconds(what: str, took: list[float], *, at_most: float, note: str = "") -> Figure:
    spread = f"median of {len(took)}; slowest {max(took) * 1e3:.1f} ms"
    return Figure(
        what=what, value=middle(took) * 1e3, unit="ms", at_most=at_most, note=f"{spread}{note and '; '}{note}"
    )


# In this order: what measures memory and the interpreter lock comes before torch is imported.
SECTIONS: dict[str, Callable[[Bench], None]] = {
    "start": Bench.start,
    "wide": Bench.wide,
    "write": Bench.write,
    "wait": Bench.wait,
    "read": Bench.read,
    "window": Bench.window,
    "listing": Bench.listing,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed and size of the run store.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the data, to see that it works")
    parser.add_argument("--full", action="store_true", help="SummaryWriter and EventAccumulator over all steps")
    parser.add_argument("--only", choices=SECTIONS, action="append", help="one section; may be given several times")
    parser.add_argument("--dir", type=Path, help="where to write; a temporary folder where left out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        print("## Store\n")
        print(f"`python benchmarks/store.py{' --quick' * options.quick}{' --full' * options.full}`, one process:\n")
        print_machine(("sonde", "numpy", "pyarrow", "torch", "tensorboard"), Path(folder))
        bench = Bench(Path(folder), quick=options.quick, full=options.full)
        for name in options.only or SECTIONS:
            SECTIONS[name](bench)


if __name__ == "__main__":
    main()
