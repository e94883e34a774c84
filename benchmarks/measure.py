"""What every benchmark needs: the machine in words, clocks, memory, the interpreter lock, and Markdown tables."""

import contextlib
import datetime
import importlib.metadata
import os
import platform
import re
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A number beside the bar that it must reach; `bar` is None where the number is only told.

    Args:
        what: What was measured.
        value: In `unit`.
        unit: For example `ms`.
        at_most: The bar, where smaller is better.
        at_least: The bar, where larger is better.
        note: How it was measured, where that is not plain.
    """

    what: str
    value: float
    unit: str = ""
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        """`pass`, `MISS`, or nothing where there is no bar."""
        if self.at_most is None and self.at_least is None:
            return ""
        good = (self.at_most is None or self.value <= self.at_most) and (
            self.at_least is None or self.value >= self.at_least
        )
        return "pass" if good else "**MISS**"

    @property
    def bar(self) -> str:
        """The bar in words."""
        if self.at_most is not None:
            return f"≤ {_number(self.at_most)} {self.unit}".strip()
        return f"≥ {_number(self.at_least)} {self.unit}".strip() if self.at_least is not None else ""


def print_figures(title: str, figures: Sequence[Figure]) -> None:
    """A Markdown table of figures under a heading."""
    rows = [(f.what, f"{_number(f.value)} {f.unit}".strip(), f.bar, f.verdict, f.note) for f in figures]
    print_table(title, ("what", "measured", "bar", "", "how"), rows)


def print_table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A Markdown table under a heading."""
    print(f"\n### {title}\n")
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    sys.stdout.flush()


def _number(value: float) -> str:
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def print_machine(packages: Sequence[str], folder: Path) -> None:
    """Where and when the figures were measured, as a Markdown list."""
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    memory = re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    ram = f"{int(memory[1]) / 2**20:.0f} GiB RAM" if memory else "RAM unknown"
    now = datetime.datetime.now(datetime.UTC)
    print(f"- measured {now:%Y-%m-%d %H:%M} UTC; load average at the start {os.getloadavg()[0]:.2f}")
    print(f"- {os.cpu_count()} cores ({model[1] if model else platform.machine()}), {ram}, {disk(folder)}")
    kernel = platform.release().split("-")[0]
    print(f"- {platform.system()} {kernel}, Python {platform.python_version()}, {versions}")


def disk(folder: Path) -> str:
    """What a folder lies on: file system, device, and what the kernel says of it."""
    mount = max(
        (line.split() for line in Path("/proc/mounts").read_text().splitlines()),
        key=lambda words: len(words[1]) if f"{folder.resolve()}/".startswith(words[1].rstrip("/") + "/") else -1,
    )
    device = Path(mount[0]).name
    rotational = Path(f"/sys/block/{device}/queue/rotational")
    if device.startswith("vd"):
        kind = "a virtual disk, its kind is not known"
    elif rotational.exists():
        kind = "a spinning disk" if rotational.read_text().strip() == "1" else "a solid-state disk"
    else:
        kind = "its kind is not known"
    return f"{mount[2]} on {mount[0]} ({kind})"


def seconds(call: Callable[[], object], *, times: int = 1) -> list[float]:
    """How long each of some calls took."""
    took = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        took.append(time.perf_counter() - start)
    return took


def middle(values: Sequence[float]) -> float:
    """The median."""
    return statistics.median(values)


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least so many percent of the values do not exceed."""
    return float(np.percentile(values, percent, method="inverted_cdf"))


def size_of(folder: Path, *patterns: str) -> int:
    """Bytes of the files under a folder that match any pattern."""
    return sum(path.stat().st_size for pattern in patterns for path in folder.rglob(pattern) if path.is_file())


class Wait(NamedTuple):
    """A longest wait in milliseconds: as it was, and the longest less the kernel's queue for a core."""

    ms: float
    unqueued_ms: float


class Heartbeat:
    """How long other threads keep the interpreter lock at a time.

    A thread that lets go of the lock and asks for it again every tenth of a millisecond. What a gap between its ticks
    is longer than the usual one (the median while nothing else runs) it waited: for the lock, or for a core. Beside
    that it tells the wait less the time that it, or a thread that it watches, stood in the kernel's queue for a core:
    the rest is what other programs on the machine may have caused. `idle` is the longest while nothing else runs.
    """

    _TICK_S = 100e-6
    _IDLE_S = 2.0

    def __init__(self) -> None:
        self._gaps: list[float] = []  # plain numbers: tuples would wake the garbage collector that is being measured
        self._unqueued: list[float] = []
        self._usual = 0.0
        self._queues: list[Queue] = []
        self._going = True
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()
        time.sleep(self._IDLE_S)
        self._usual = middle(self._gaps)
        self.idle = self.longest()

    def _beat(self) -> None:
        self._queues = [Queue(threading.current_thread())]
        before, queued_before = time.perf_counter(), 0.0
        while self._going:
            time.sleep(self._TICK_S)
            queued = sum(queue.seconds() for queue in self._queues)
            now = time.perf_counter()
            self._gaps.append(now - before)
            self._unqueued.append(now - before - (queued - queued_before))
            before, queued_before = now, queued

    def watch(self, name: str) -> None:
        """Watch the threads whose names begin like this."""
        found = [Queue(thread) for thread in threading.enumerate() if thread.name.startswith(name)]
        self._queues = [self._queues[0], *found]

    def longest(self) -> Wait:
        """The longest waits since the last call."""
        gaps, self._gaps = self._gaps, []
        unqueued, self._unqueued = self._unqueued, []
        ms, unqueued_ms = (max(0.0, max(found, default=0.0) - self._usual) * 1e3 for found in (gaps, unqueued))
        return Wait(ms, unqueued_ms)

    def stop(self) -> None:
        self._going = False
        self._thread.join()


class Queue:
    """How long a thread stood in the kernel's queue for a core: what other programs on the machine cost it."""

    def __init__(self, thread: threading.Thread) -> None:
        self._fd = os.open(f"/proc/self/task/{thread.native_id}/schedstat", os.O_RDONLY)
        self._seconds = 0.0

    def seconds(self) -> float:
        """All of its time so far."""
        with contextlib.suppress(ProcessLookupError):  # the thread has ended
            self._seconds = int(os.pread(self._fd, 64, 0).split()[1]) * 1e-9
        return self._seconds

    def __del__(self) -> None:
        os.close(self._fd)


class Memory:
    """The process's extra memory since this was made: its peak (the kernel's high-water mark) and what it is now."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # forget the old high-water mark
        self._before = _status_kib("VmRSS")

    def peak_mb(self) -> float:
        return (_status_kib("VmHWM") - self._before) * 1024 / 1e6


def _status_kib(field: str) -> int:
    found = re.search(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found
    return int(found[1])
