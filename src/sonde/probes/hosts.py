"""The process that trains, as the operating system sees it."""

import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import final

import numpy as np

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
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


@final
class Hosts:
    """Reads the memory, processor time and threads of this process.

    The memory that it holds is read where the iteration ends, which takes some 10 µs, so that growth shows step by step
    however late the background comes to it; the rest is read there.

    The share of processor time is (user + system time) / (elapsed time × processors), since the reading before or, the
    first time, since construction: 1 means that no processor was ever idle. Processes that load data are not counted.

    Without Linux's `/proc` the memory held now, the threads and the memory that is available are `MISSING`; the last
    one also within a second of the reading before.

    Args:
        status: Where Linux tells about the process.

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

    def __init__(self, *, status: Path = _STATUS) -> None:
        self._status, self._statm = status, status.with_name("statm")
        self._has_status = status.exists()
        self._last = _times()
        self._room, self._room_at = HostRoom(proc=status.parents[1]), -_ROOM_S
        self._armed = False

    def arm(self, slots: Sequence[int]) -> None:
        """Nothing has to be hooked."""
        self._armed = bool(slots)

    def collect(self) -> Sequence[Reading]:
        """The memory as it is now; have the rest read in the background."""
        armed, self._armed = self._armed, False
        return [Reading((), partial(self._report, self._rss()))] if armed else []

    def not_measured(self) -> Mapping[str, str]:
        """What only Linux tells."""
        if self._has_status:
            return {}
        return dict.fromkeys(("host/rss", "host/threads", "host/available"), f"this system has no {_STATUS}")

    def close(self) -> None:
        """Nothing is held."""

    def _rss(self) -> float:
        if not self._has_status:
            return float(MISSING)
        return float(self._statm.read_bytes().split()[1]) * _PAGE_BYTES  # the second number: resident pages

    def _report(self, rss: float, _numbers: Float64) -> Iterable[Row]:
        status = self._read_status()
        busy_before, clock_before = self._last
        busy, clock = self._last = _times()
        elapsed = (clock - clock_before) * _num_processors()
        share = (busy - busy_before) / elapsed if elapsed > 0 else MISSING
        peak, threads = status.get("VmHWM", _peak()), status.get("Threads", MISSING)
        return [Row(_COLUMNS, np.array([rss, peak, share, threads, self._available(clock)], np.float64))]

    def _available(self, clock: float) -> float:
        if clock - self._room_at < _ROOM_S:
            return float(MISSING)
        self._room_at = clock
        return self._room.read()

    def _read_status(self) -> dict[str, float]:
        """Its numbers, those in kB as bytes."""
        if not self._has_status:
            return {}
        lines = (line.split() for line in self._status.read_text().splitlines())
        return {
            words[0].rstrip(":"): float(words[1]) * (1024 if words[-1] == "kB" else 1)
            for words in lines
            if len(words) in (2, 3) and words[0] in ("VmHWM:", "Threads:")
        }


def _times() -> tuple[float, float]:
    """Processor time of the process and the clock, both in seconds."""
    return time.process_time(), time.perf_counter()


def _num_processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _peak() -> float:
    try:
        import resource
    except ImportError:  # there is none on Windows
        return float(MISSING)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak if sys.platform == "darwin" else 1024 * peak)  # bytes there, kB elsewhere
