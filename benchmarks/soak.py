"""Whether a watched training can go on for ever: 100,000 steps of a tiny model with the default settings.

Memory (RSS) is read every 1,000 steps, as it is and again after the allocators (the C library's and Arrow's) were asked
to give back what nobody holds: pages that are kept for the next merging of segments come and go by megabytes, which is
no growth. Slope and spread are those of the latter after the first fifth of the run; the slope is the median of those
between any two readings (Theil and Sen), which a few high ones at either end do not tilt. What the doctor has not
judged yet is read as well. Threads and open files are counted before, at the end and after closing, and the run is read
back.

Usage: python benchmarks/soak.py [--steps 100000]
"""

import argparse
import ctypes
import os
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from measure import Figure, print_figures, print_machine, print_table, size_of
from torch import nn

import sonde

EVERY_STEPS = 1_000
MAX_SLOPE_KB = 10.0  # per 1,000 steps: a million steps would take 10 MB
MAX_SPREAD_KB = 4_096.0  # a few buffers that come and go
MAX_WAITING_KB = 256.0  # rows of half a second: the doctor keeps up
_C_LIBRARY = ctypes.CDLL(None)


def rss_kb() -> float:
    """The process's memory that is in RAM."""
    num_pages = int(Path("/proc/self/statm").read_text().split()[1])
    return num_pages * os.sysconf("SC_PAGE_SIZE") / 1e3


def held_kb() -> float:
    """The same without what the allocators keep for later."""
    pa.default_memory_pool().release_unused()
    if hasattr(_C_LIBRARY, "malloc_trim"):
        _C_LIBRARY.malloc_trim(0)
    return rss_kb()


def num_files() -> int:
    """Open file descriptors."""
    return len(os.listdir("/proc/self/fd")) - 1  # the listing holds one itself


class Soak:
    """A tiny watched training and what was seen of the process meanwhile."""

    def __init__(self, folder: Path, num_steps: int) -> None:
        self.run, self.num_steps = folder / "run", num_steps
        torch.manual_seed(0)
        self._model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-3)
        self._inputs, self._targets = torch.randn(32, 8), torch.randn(32, 4)
        self.rss_kb: list[float] = []
        self.held_kb: list[float] = []
        self.waiting_kb: list[float] = []
        self.steps_per_s = self.close_s = 0.0
        self.threads: dict[str, int] = {}
        self.files: dict[str, int] = {}

    def _count(self, when: str) -> None:
        self.threads[when], self.files[when] = threading.active_count(), num_files()

    def _step(self) -> torch.Tensor:
        loss = nn.functional.mse_loss(self._model(self._inputs), self._targets)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        return loss

    def go(self) -> None:
        self._step()  # so that what torch opens and starts is not counted as Sonde's
        self._count("before")
        watch = sonde.watch(self._model, self._optimizer, run=self.run)
        started = time.perf_counter()
        for step in range(1, self.num_steps + 1):
            watch.step(self._step())
            if step % EVERY_STEPS == 0:
                self.rss_kb.append(rss_kb())
                self.held_kb.append(held_kb())
                self.waiting_kb.append(watch._doctor.waiting_bytes / 1e3 if watch._doctor is not None else 0.0)
        self.steps_per_s = self.num_steps / (time.perf_counter() - started)
        self._count("at the end")
        started = time.perf_counter()
        watch.close()
        self.close_s = time.perf_counter() - started
        self._count("after closing")

    def figures(self) -> list[Figure]:
        later = np.array(self.held_kb[len(self.held_kb) // 5 :])
        first, second = np.triu_indices(len(later), 1)
        slope = float(np.median((later[second] - later[first]) / (second - first)))
        found = sonde.load(self.run)
        own = found.series("monitor/time").value
        return [
            Figure(
                what="memory, slope",
                value=slope,
                unit="kB per 1,000 steps",
                at_most=MAX_SLOPE_KB,
                note=f"median slope between any two of the last {len(later)} readings",
            ),
            Figure(
                what="memory, largest less smallest",
                value=float(np.ptp(later)),
                unit="kB",
                at_most=MAX_SPREAD_KB,
                note="of the same readings",
            ),
            Figure(
                what="rows waiting to be judged, largest",
                value=max(self.waiting_kb),
                unit="kB",
                at_most=MAX_WAITING_KB,
                note=f"of {len(self.waiting_kb)} readings; {self.waiting_kb[-1]:.0f} kB at the last step",
            ),
            Figure(
                what="Python threads left after closing",
                value=self.threads["after closing"] - self.threads["before"],
                at_most=0,
                note=f"{_counts(self.threads)}; libraries' own (Arrow's allocator has one) are not counted",
            ),
            Figure(
                what="open files left after closing",
                value=self.files["after closing"] - self.files["before"],
                at_most=0,
                note=_counts(self.files),
            ),
            Figure(
                what="points of the loss, read back",
                value=len(found.series("loss").value),
                at_least=self.num_steps,
                at_most=self.num_steps,
            ),
            Figure(what="speed", value=self.steps_per_s, unit="steps/s"),
            Figure(
                what="own time of a step",
                value=float(np.median(own)) * 1e3,
                unit="ms",
                note=f"median; mean {own.mean() * 1e3:.3f} ms",
            ),
            Figure(what="closing", value=self.close_s, unit="s"),
            Figure(
                what="the run on disk",
                value=size_of(self.run, "*") / 1e6,
                unit="MB",
                note=f"{len(found.tags())} series, {sum(path.is_file() for path in self.run.rglob('*'))} files",
            ),
        ]


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {when}" for when, count in counts.items())


def main() -> None:
    parser = argparse.ArgumentParser(description="Whether memory, threads and files stay flat over many watched steps.")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--dir", type=Path, help="where to write; a temporary folder where left out")
    options = parser.parse_args()
    if options.steps < 4 * EVERY_STEPS:
        parser.error(f"--steps must be at least {4 * EVERY_STEPS:,}, got {options.steps}: memory is read too rarely.")
    torch.set_num_threads(1)  # tensors this small gain nothing from a second thread
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        print("## Soak\n")
        print(f"`python benchmarks/soak.py --steps {options.steps}`, one process, one thread of torch:\n")
        print_machine(("numpy", "pyarrow", "torch"), Path(folder))
        soak = Soak(Path(folder), options.steps)
        soak.go()
        print_figures(f"{options.steps:,} watched steps", soak.figures())
        num = len(soak.rss_kb)
        shown = sorted({0, *(tenth * num // 10 - 1 for tenth in range(1, 11))})
        rows = [
            (f"{(i + 1) * EVERY_STEPS:,}", f"{soak.rss_kb[i] / 1e3:.2f} MB", f"{soak.held_kb[i] / 1e3:.2f} MB")
            for i in shown
        ]
        print_table("Memory", ("after steps", "RSS", "of which is held"), rows)


if __name__ == "__main__":
    main()
