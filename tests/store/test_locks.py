import os
import subprocess
import sys
from pathlib import Path

import pytest

from sonde.core.errors import RunBusy
from sonde.store import locks
from sonde.store.layout import LOCK

HOLD = """
import sys
from pathlib import Path
from sonde.store import locks
locks.acquire(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_the_lock_is_held_until_its_file_is_closed(tmp_path: Path) -> None:
    fd = locks.acquire(tmp_path)
    while_open = locks.is_held(tmp_path)
    os.close(fd)
    assert (while_open, locks.is_held(tmp_path)) == (True, False)


def test_a_second_holder_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    fd = locks.acquire(tmp_path)
    with pytest.raises(RunBusy, match=f"process {os.getpid()} on .*folder of its own"):
        locks.acquire(tmp_path)
    os.close(fd)
    os.close(locks.acquire(tmp_path))


def test_looking_does_not_disturb_and_leaves_nothing_held(tmp_path: Path) -> None:
    os.close(locks.acquire(tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        assert locks.is_held(tmp_path) is False
    assert len(os.listdir("/proc/self/fd")) == before
    os.close(locks.acquire(tmp_path))


def test_a_refused_holder_leaves_no_file_open(tmp_path: Path) -> None:
    fd = locks.acquire(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(RunBusy):
        locks.acquire(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before
    os.close(fd)


def test_a_run_without_a_lock_is_held_by_nobody(tmp_path: Path) -> None:
    assert locks.is_held(tmp_path) is False
    assert locks.is_held(tmp_path / "nothing") is False
    assert not (tmp_path / LOCK).exists()


def test_the_lock_of_another_process_goes_with_it(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        held = locks.is_held(tmp_path)
        with pytest.raises(RunBusy, match=f"process {process.pid} "):
            locks.acquire(tmp_path)
        process.kill()
        process.wait()
        assert (held, locks.is_held(tmp_path)) == (True, False)
    os.close(locks.acquire(tmp_path))
