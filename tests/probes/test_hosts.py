"""The process as the operating system sees it."""

import mmap
import subprocess
import sys
import threading
import time

import numpy as np
import psutil
import pytest

from sonde.core.frames import is_missing
from sonde.probes.hosts import Hosts

from .armed import iteration

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells")


@linux
def test_memory_that_is_touched_counts_and_its_peak_stays() -> None:
    hosts = Hosts()
    before = iteration(hosts, lambda: None)
    held = mmap.mmap(-1, 2**26)  # not from the heap, which may have that much in stock
    for page in range(0, 2**26, mmap.PAGESIZE):
        held[page] = 1
    during = iteration(hosts, lambda: None)
    held.close()
    after = iteration(hosts, lambda: None)
    assert during["host/rss"] - before["host/rss"] > 0.9 * 2**26
    assert after["host/rss"] < during["host/rss"] - 0.9 * 2**26
    # Linux counts in pages that each thread has in stock: not all of them at once.
    assert after["host/rss_peak"] > 0.99 * during["host/rss"] > after["host/rss"]


@linux
def test_what_the_machine_has_left_is_read_once_a_second() -> None:
    hosts = Hosts()
    first, second = (iteration(hosts, lambda: None)["host/available"] for _ in range(2))
    assert 0 < first < 2**60
    assert is_missing(np.array(second, np.float32))


@linux
def test_threads_are_counted() -> None:
    hosts, done = Hosts(), threading.Event()
    before = iteration(hosts, lambda: None)["host/threads"]
    thread = threading.Thread(target=done.wait)
    thread.start()
    during = iteration(hosts, lambda: None)["host/threads"]
    done.set()
    thread.join()
    assert during == before + 1


def _work(cpu_s: float) -> None:
    until = time.process_time() + cpu_s
    while time.process_time() < until:
        sum(range(1000))


def test_processor_time_is_a_share_of_what_passed_since_the_last_reading() -> None:
    started = time.perf_counter()
    hosts = Hosts()
    share = iteration(hosts, lambda: _work(0.02))["host/cpu_share"]
    elapsed = time.perf_counter() - started
    assert share * elapsed > 0
    assert 0 <= iteration(hosts, lambda: None)["host/cpu_share"] <= 1.5  # one clock ticks after the other


def test_what_the_system_does_not_tell_is_missing_and_said() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        process = psutil.Process(gone.pid)
    hosts = Hosts(process=process)
    found = iteration(hosts, lambda: _work(0.01))
    missing = {tag for tag, value in found.items() if is_missing(np.array(value, np.float32))}
    assert missing == {"host/rss", "host/threads"} == set(hosts.not_measured())
    assert found["host/rss_peak"] > 2**20
    assert found["host/cpu_share"] > 0


def test_here_all_is_told() -> None:
    assert Hosts().not_measured() == {}


def test_nothing_comes_of_it_unless_armed() -> None:
    hosts = Hosts()
    assert hosts.collect() == []
    assert set(iteration(hosts, lambda: None)) == set(hosts.yields)
    assert hosts.collect() == []
