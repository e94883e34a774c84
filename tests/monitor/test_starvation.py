"""A thread that has to wait for a processor knows for how long."""

import sys
import time

import pytest

from sonde.monitor.starvation import Starvation


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps these books")
def test_what_is_waited_for_counts_once_and_never_backwards() -> None:
    starvation = Starvation()
    began = time.perf_counter()
    seen = [starvation.take() for _ in range(200)]
    took = time.perf_counter() - began
    assert all(value is not None and value >= 0 for value in seen)
    assert sum(value or 0.0 for value in seen) <= took + 0.01
    starvation.close()
    assert starvation.take() is None
    starvation.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps these books")
def test_of_very_short_steps_the_last_of_several_has_what_all_of_them_waited() -> None:
    starvation = Starvation()
    began, seen = time.perf_counter(), []
    for _ in range(40):
        while time.perf_counter() - began < 1e-4:
            pass
        began = time.perf_counter()
        seen.append(starvation.take(1e-4))
    assert all(value == 0 for value in seen[:19])
    assert all(value is not None and value >= 0 for value in seen)
    starvation.close()
