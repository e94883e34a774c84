"""The process that trains, as the operating system sees it."""

import math
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import final

import numpy as np
import psutil

from sonde.core.frames import MISSING, Columns
from sonde.core.records import Float64
from sonde.probes.host_room import HostRoom
from sonde.probes.probe import Reading, Row

_YIELDS = {
    "host/rss": "bytes of memory that the process holds",
    "host/rss_peak": "the most bytes of memory that the process ever held",
    "host/cpu_share": "processor time since the last reading, as a share of all processors that it may use",
    "host/threads": "threads of the process, those of libraries too",
    "host/available": "bytes of memory that the machine or its container still has for the process, once a second",
}
_COLUMNS = Columns("host", tuple(_YIELDS))
_STATUS = Path("/proc/self/status")
_ROOM_S = 1.0  # between two looks at the machine's memory, which take the background longer than all the rest


@final
class Hosts:
    """Reads the memory, processor time and threads of this process.

    The memory that it holds is read where the iteration ends, which takes some 10 µs, so that growth shows step by step
    however late the background comes to it; the rest is read there.

    The share of processor time is (user + system time) / (elapsed time × processors), since the reading before or, the
    first time, since construction: 1 means that no processor was ever idle. Processes that load data are not counted.

    What the system does not tell is `MISSING`; the memory that is available also within a second of the reading before.

    Args:
        process: Whose memory and threads are read; those of this process where left out.

    Example:
        >>> hosts = Hosts()
        >>> hosts.arm([0])
        >>> (reading,) = hosts.collect()
        >>> (row,) = reading.report(np.empty(0))
        >>> dict(zip(row.columns.tags, row.values))["host/rss_peak"] > 1e6
        np.True_
    """

    yields = _YIELDS
    num_slots = 1

    def __init__(self, *, process: psutil.Process | None = None) -> None:
        self._process = psutil.Process() if process is None else process
        self._last = _times()
        self._room, self._room_at = HostRoom(), -_ROOM_S
        self._armed = False

    def arm(self, slots: Sequence[int]) -> None:
        """Nothing has to be hooked."""
        self._armed = bool(slots)

    def collect(self) -> Sequence[Reading]:
        """The memory as it is now; have the rest read in the background."""
        armed, self._armed = self._armed, False
        return [Reading((), partial(self._report, self._rss()))] if armed else []

    def not_measured(self) -> Mapping[str, str]:
        """What this system does not tell."""
        tells = {
            "host/rss": self._rss,
            "host/rss_peak": lambda: _peak(self._process),
            "host/threads": self._threads,
            "host/available": self._room.read,
        }
        return {tag: "this system does not tell" for tag, read in tells.items() if math.isnan(read())}

    def close(self) -> None:
        """Nothing is held."""

    def _rss(self) -> float:
        try:
            return float(self._process.memory_info().rss)
        except (psutil.Error, OSError):
            return float(MISSING)

    def _threads(self) -> float:
        try:
            return float(self._process.num_threads())
        except (psutil.Error, OSError):
            return float(MISSING)

    def _report(self, rss: float, _numbers: Float64) -> Iterable[Row]:
        busy_before, clock_before = self._last
        busy, clock = self._last = _times()
        elapsed = (clock - clock_before) * _num_processors()
        share = (busy - busy_before) / elapsed if elapsed > 0 else MISSING
        values = [rss, _peak(self._process), share, self._threads(), self._available(clock)]
        return [Row(_COLUMNS, np.array(values, np.float64))]

    def _available(self, clock: float) -> float:
        if clock - self._room_at < _ROOM_S:
            return float(MISSING)
        self._room_at = clock
        return self._room.read()


def _times() -> tuple[float, float]:
    """Processor time of the process and the clock, both in seconds."""
    return time.process_time(), time.perf_counter()


def _num_processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _peak(process: psutil.Process) -> float:
    # Linux tells it in a file that psutil does not read; `getrusage` has there what the parent held at the fork.
    try:
        for line in _STATUS.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * float(line.split()[1])
    except (OSError, ValueError, IndexError):
        pass
    try:
        import resource
    except ImportError:  # there is none on Windows, which tells psutil
        try:
            return float(getattr(process.memory_info(), "peak_wset", MISSING))
        except (psutil.Error, OSError):
            return float(MISSING)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak if sys.platform == "darwin" else 1024 * peak)  # bytes there, kB elsewhere
