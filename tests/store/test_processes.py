"""Whether the process that records a run is still there, asked without a lock."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import sonde
from sonde.core.records import Ending
from sonde.store import processes
from sonde.store.layout import LOCK, STATE

RECORD = """
import sys, sonde
run = sonde.record(sys.argv[1])
run.log({"loss": 1.0}, step=1)
run.flush()
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_process_lives_until_it_is_gone_and_a_zombie_does_not() -> None:
    now = time.time()
    assert processes.is_alive(os.getpid(), before=now)
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    assert processes.is_alive(process.pid, before=time.time())
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not processes.is_alive(process.pid, before=time.time())
    process.communicate()
    assert not processes.is_alive(process.pid, before=time.time())


def test_a_later_process_with_the_same_number_is_another() -> None:
    assert not processes.is_alive(os.getpid(), before=time.time() - 86_400)


@pytest.mark.parametrize("number", [-1, 0x7FFFFFFF, 1 << 80])
def test_a_number_that_is_no_process_is_not_alive(number: int) -> None:
    assert not processes.is_alive(number, before=time.time())


def test_reading_a_live_run_takes_no_lock_and_makes_no_file(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with subprocess.Popen(
        [sys.executable, "-c", RECORD, str(run)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        (run / LOCK).unlink()  # who reads does not ask for it
        names = {path for path in run.rglob("*") if path.suffix != ".tmp"}
        read = sonde.load(run)
        living = read.state.ending
        assert read.series("loss").value.tolist() == [1.0]
        assert sonde.runs(tmp_path)[0].ending is Ending.LIVE
        assert not (run / LOCK).exists()
        assert {path for path in run.rglob("*") if path.suffix != ".tmp"} == names
        process.kill()
        process.wait()
        assert (living, read.state.ending) == (Ending.LIVE, Ending.DIED)


@pytest.mark.parametrize("key", ["host", "space"])
def test_what_another_machine_or_container_records_is_known_by_its_heartbeat(tmp_path: Path, key: str) -> None:
    with sonde.record(tmp_path / "run") as writer:
        writer.log({"loss": 1.0})
    path = tmp_path / "run" / STATE
    state = {**json.loads(path.read_text()), "ending": "live", key: "elsewhere", "process": 1 << 30}
    path.write_text(json.dumps(state))
    assert sonde.load(tmp_path / "run").state.ending is Ending.LIVE
    path.write_text(json.dumps({**state, "updated": state["updated"] - 3600}))
    assert sonde.load(tmp_path / "run").state.ending is Ending.DIED
