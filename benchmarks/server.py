"""How long the page waits for the server: a folder of many runs, a very long and wide run, a heat map of many layers.

Usage: python benchmarks/server.py [--quick] [--only NAME] [--dir FOLDER]

Prints the Markdown of `benchmarks/RESULTS.md`; each figure stands beside its bar. The server is `sonde ui` in a process
of its own, asked over HTTP on the same machine, compression included; nothing of it is warmed up before the first
figure of each table. Runs are recorded by `sonde.record`, but for the segments of the long run, which are written by
the writer's own `write_segment`, as long as the writer makes them: recording 10⁹ numbers row by row would take an hour.
"""

import argparse
import contextlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import numpy as np
from measure import Figure, middle, print_figures, print_machine, seconds

import sonde
from sonde.core.frames import Columns, Frame
from sonde.store.folding import MAX_ROWS
from sonde.store.segments import write_segment

NUM_RUNS, RUN_STEPS = 1000, 200
LONG_STEPS, LONG_TAGS = 1_000_000, 1_000
HEAT_STEPS, HEAT_LAYERS = 100_000, 1_000
TIMES = 20
JUDGED = {"doctor": {"value": "process", "from": "default"}}
"""As `watch` records: else a run is replayed in the background as soon as its page is asked for."""


@contextlib.contextmanager
def served(folder: Path) -> Iterator[httpx.Client]:
    """A client of `sonde ui` on a folder."""
    command = [sys.executable, "-m", "sonde", "ui", str(folder), "--port", "0", "--no-open"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found is not None
        with httpx.Client(base_url=found[0], timeout=600) as client:
            yield client
    finally:
        process.terminate()
        process.wait()


def asked(client: httpx.Client, path: str, *, times: int = 1) -> list[float]:
    """Seconds that an answer takes, each time anew."""

    def ask() -> None:
        client.get(path).raise_for_status()

    return seconds(ask, times=times)


def milliseconds(what: str, took: list[float], *, at_most: float | None = None, note: str = "") -> Figure:
    """A figure of answers: the median of them."""
    told = f"median of {len(took)}, slowest {max(took) * 1e3:.1f} ms" if len(took) > 1 else "asked once"
    return Figure(what=what, value=middle(took) * 1e3, unit="ms", at_most=at_most, note=f"{told}; {note}".rstrip("; "))


class Bench:
    """The sections, each a method, and the runs that they read."""

    def __init__(self, folder: Path, *, quick: bool) -> None:
        self.folder, self.quick = folder, quick
        self.share = 0.05 if quick else 1.0
        self.rng = np.random.default_rng(7)

    def table(self) -> None:
        """A folder of many runs."""
        num_runs = round(NUM_RUNS * self.share)
        folder = self.folder / f"runs-{num_runs}"
        if not folder.exists():
            for number in range(num_runs):
                self._short(folder / f"family-{number % 10}" / f"run-{number:04}", number)
        began = time.perf_counter()
        with served(folder) as client:
            started = time.perf_counter() - began
            (first,) = asked(client, "/api/runs")
            answer = client.get("/api/runs")
            assert len(answer.json()["runs"]) == answer.json()["total"] == num_runs
            again = asked(client, "/api/runs", times=TIMES)
            (one,) = asked(client, f"/api/runs/{quote('family-3/run-0003', safe='')}")
        print_figures(
            f"A folder of {num_runs:,} runs, each of {RUN_STEPS} steps in six tables",
            [
                Figure(what="from `sonde ui` to the address", value=started, unit="s"),
                milliseconds("the table of all runs, first", [first], at_most=1000, note="nothing is known yet"),
                milliseconds("the same, again", again, at_most=300),
                milliseconds("one run, first", [one], at_most=1000),
                Figure(what="the table, compressed", value=int(answer.headers["content-length"]) / 1e3, unit="kB"),
            ],
        )

    def _short(self, path: Path, number: int) -> None:
        config = {"lr": 10.0 ** -(1 + number % 4), "model": {"width": 64 << number % 4, "depth": number % 7}}
        loss = 0.1 + 4 / np.sqrt(1 + np.arange(RUN_STEPS)) + 0.05 * self.rng.standard_normal(RUN_STEPS)
        layers = [f"blocks.{i}.weight" for i in range(12)]
        with sonde.record(path, config=config) as writer:
            for step in range(RUN_STEPS):
                writer.log(step, {"loss": loss[step], "lr": config["lr"], "grad/norm": 1.0, "time/step": 0.01})
                if step % 20 == 0:
                    for family in ("grad/rms", "weight/norm", "update/ratio", "act/rms", "gain/block"):
                        values = dict(zip((f"{family}@{name}" for name in layers), self.rng.random(12), strict=True))
                        writer.log(step, values, table=family.replace("/", "-"))
            if number % 3 == 0:
                writer.event("note", step=RUN_STEPS, data={"text": "a third of them says something"})

    def long(self) -> None:
        """A very long and wide run."""
        num_steps = round(LONG_STEPS * self.share)
        tags = ["loss", "lr", *(f"grad/rms@blocks.{i}.weight" for i in range(LONG_TAGS - 2))]
        folder = self.folder / f"long-{num_steps}"
        if not folder.exists():
            self._segments(folder / "run", tags, num_steps)
        with served(folder) as client:
            (page,) = asked(client, "/api/runs/run")
            (first,) = asked(client, "/api/runs/run/series?tag=loss&points=1000")
            others = [asked(client, f"/api/runs/run/series?points=1000&tag={tag}")[0] for tag in tags[2:102:5]]
            twenty = asked(
                client, "/api/runs/run/series?points=1000&" + "&".join(f"tag={tag}" for tag in tags[200:220])
            )
            low = num_steps // 2
            zooms = []
            for width in (num_steps // 3, num_steps // 30, num_steps // 1000):
                path = f"/api/runs/run/series?points=1000&tag=loss&from={low}&to={low + width}"
                zooms.append((width, asked(client, path, times=TIMES)))
            by_time = asked(client, "/api/runs/run/series?points=1000&tag=loss&by=time", times=2)
            header = client.get("/api/runs/run/series?tag=loss&points=1000").content
            length = int.from_bytes(header[:4], "little")
            told = json.loads(header[4 : 4 + length])["series"][0]
            assert 900 <= told["n"] <= 1000
            assert told["last_step"] == num_steps - 1
        print_figures(
            f"A run of {num_steps:,} steps × {len(tags):,} tags; windows of 1,000 points",
            [
                milliseconds("the run's page, first", [page], at_most=300),
                milliseconds("the loss, first", [first], at_most=300),
                milliseconds("another series, first", others, at_most=300),
                milliseconds("twenty series in one answer, first", twenty, at_most=300),
                *(
                    milliseconds(f"{width:,} steps in its middle", took, at_most=300, note="one series")
                    for width, took in zooms
                ),
                milliseconds("by time, first", by_time[:1]),
                milliseconds("by time, again", by_time[1:], at_most=300),
            ],
        )

    def _segments(self, path: Path, tags: list[str], num_steps: int) -> None:
        """A run whose table has segments of the size that the writer leaves alone."""
        with sonde.Writer(path, settings=JUDGED) as writer:
            writer.append(Frame(Columns("step", tuple(tags)), 0, 1.7e9, np.ones(len(tags), np.float32)))
        branch = path / "tables" / "step" / "b0"
        shutil.rmtree(branch)
        branch.mkdir()
        for number, first in enumerate(range(0, num_steps, MAX_ROWS)):
            step = np.arange(first, min(first + MAX_ROWS, num_steps), dtype=np.int64)

            def read(low: int, high: int, step: np.ndarray = step) -> np.ndarray:
                trend = 1 / np.sqrt(1 + step / 100)
                noise = self.rng.lognormal(0, 0.25, (high - low, len(step)))
                return (trend * noise).astype(np.float32)

            folder = branch / f"seg-{8 * number:08}-{8 * number + 7:08}"
            for _ in write_segment(folder, tags, len(tags), 1, step, 1.7e9 + step / 10.0, read):
                pass
        state = json.loads((path / "state.json").read_text())
        (path / "state.json").write_text(json.dumps({**state, "steps": num_steps - 1}))

    def heat(self) -> None:
        """A heat map."""
        num_steps = round(HEAT_STEPS * self.share)
        folder = self.folder / f"heat-{num_steps}"
        if not folder.exists():
            columns = Columns("gradients", tuple(f"grad/rms@blocks.{i}.weight" for i in range(HEAT_LAYERS)))
            with sonde.Writer(folder / "run", settings=JUDGED) as writer:
                for step in range(num_steps):
                    row = self.rng.random(HEAT_LAYERS, np.float32)
                    writer.append(Frame(columns, step, 1.7e9 + step, row))
                    if step % 500 == 0:
                        writer.flush()
        with served(folder) as client:
            path = "/api/runs/run/layers?path=grad/rms&columns=400"
            (page,) = asked(client, "/api/runs/run")  # from which one comes to its layers
            (first,) = asked(client, path)
            again = asked(client, path, times=TIMES)
            low = num_steps // 3
            parts = [
                (width, asked(client, f"{path}&from={low}&to={low + width}", times=5))
                for width in (num_steps // 10, num_steps // 100)
            ]
            size = len(client.get(path).content)
        print_figures(
            f"A heat map of {HEAT_LAYERS:,} layers × {num_steps:,} steps in 400 columns",
            [
                milliseconds("the run's page, first", [page], at_most=300),
                milliseconds("all of it, first", [first], at_most=300, note=f"{size / 1e6:.1f} MB"),
                milliseconds("the same, again", again, at_most=300),
                *(milliseconds(f"{width:,} steps in its middle", took, at_most=300) for width, took in parts),
            ],
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a twentieth of everything")
    parser.add_argument("--only", choices=("table", "long", "heat"))
    parser.add_argument("--dir", type=Path, help="keep the runs there, and take those that are there")
    args = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = args.dir or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        print_machine(("sonde", "numpy", "pyarrow", "fastapi", "uvicorn"), folder)
        bench = Bench(folder, quick=args.quick)
        for section in ("table", "long", "heat"):
            if args.only in (None, section):
                getattr(bench, section)()


if __name__ == "__main__":
    main()
