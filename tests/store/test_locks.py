import os
import subprocess
import sys
from pathlib import Path

import pytest

from sonde.core.errors import RunBusy
from sonde.store import locks

HOLD = """
import sys
from pathlib import Path
from sonde.store import locks
locks.acquire(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_holder_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    fd = locks.acquire(tmp_path)
    with pytest.raises(RunBusy, match=f"process {os.getpid()} on .*folder of its own"):
        locks.acquire(tmp_path)
    os.close(fd)
    os.close(locks.acquire(tmp_path))


def test_a_refused_holder_leaves_no_file_open(tmp_path: Path) -> None:
    fd = locks.acquire(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(RunBusy):
        locks.acquire(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before
    os.close(fd)


def test_the_lock_of_another_process_goes_with_it(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(RunBusy, match=f"process {process.pid} "):
            locks.acquire(tmp_path)
        process.kill()
        process.wait()
    os.close(locks.acquire(tmp_path))
