"""Real processes that end in every way there is."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import sonde
from sonde.core.records import Ending
from sonde.store import states

START = """
import os, signal, sys, threading, time
import sonde
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell starts with it ignored
run = sonde.record(sys.argv[1])
for step in range(100):
    run.log({"loss": 1.0 + step}, step=step)
"""

CLOSED = "run.close()"
FORGOTTEN = ""
EXIT = "sys.exit(3)"
CRASH = "raise RuntimeError('the loss is gone')"
INTERRUPT = "os.kill(os.getpid(), signal.SIGINT); time.sleep(30)"
TERMINATE = "run.flush(); os.kill(os.getpid(), signal.SIGTERM); time.sleep(30)"
KILL = "run.flush(); os.kill(os.getpid(), signal.SIGKILL)"
HARD_EXIT = "run.flush(); os._exit(5)"
WITH_EXIT = "with run: sys.exit(3)"
WITH_EXIT_ZERO = "with run: sys.exit()"
WITH_CRASH = "with run: raise RuntimeError('the loss is gone')"
CAUGHT_CRASH = """
try:
    with run: raise RuntimeError('the loss is gone')
except RuntimeError:
    pass
"""
OTHER_THREAD = """
thread = threading.Thread(target=lambda: run.log({"loss": 0.0}, step=100))
thread.start(); thread.join()
"""


def ended(path: Path, body: str) -> "subprocess.CompletedProcess[str]":
    code = textwrap.dedent(START) + textwrap.dedent(body)
    return subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize(
    ("body", "status", "ending", "reason"),
    [
        (CLOSED, 0, Ending.FINISHED, ""),
        (FORGOTTEN, 0, Ending.EXITED, "without closing"),
        (EXIT, 3, Ending.EXITED, "without closing"),
        (CRASH, 1, Ending.CRASHED, "RuntimeError: the loss is gone"),
        (INTERRUPT, -signal.SIGINT, Ending.INTERRUPTED, "Ctrl-C"),
        (TERMINATE, -signal.SIGTERM, Ending.DIED, ""),
        (KILL, -signal.SIGKILL, Ending.DIED, ""),
        (HARD_EXIT, 5, Ending.DIED, ""),
        (WITH_EXIT, 3, Ending.EXITED, "exit status 3"),
        (WITH_EXIT_ZERO, 0, Ending.FINISHED, ""),
        (WITH_CRASH, 1, Ending.CRASHED, "RuntimeError: the loss is gone"),
        (CAUGHT_CRASH, 0, Ending.CRASHED, "RuntimeError: the loss is gone"),
        (OTHER_THREAD, 0, Ending.EXITED, "without closing"),
    ],
)
def test_the_state_says_how_the_process_ended(
    tmp_path: Path, body: str, status: int, ending: Ending, reason: str
) -> None:
    done = ended(tmp_path / "run", body)
    assert done.returncode == status, done.stderr
    run = sonde.load(tmp_path / "run")
    assert run.state.ending is ending
    assert reason in run.state.reason
    assert np.array_equal(run.series("loss", end=99).value, 1.0 + np.arange(100, dtype=np.float32))
    assert not run.problems


def test_sigterm_ends_a_process_whose_main_thread_waits_in_c(tmp_path: Path) -> None:
    """A handler in Python would never run: the thread that waits for a lock does not come back for it."""
    body = """
    run.flush()
    threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
    """
    done = ended(tmp_path / "run", body)
    assert done.returncode == -signal.SIGTERM, done.stderr
    assert sonde.load(tmp_path / "run").steps == 99


def test_the_state_of_a_process_that_is_gone_is_said_once_and_not_over_another(tmp_path: Path) -> None:
    done = ended(tmp_path / "run", "print(os.getpid(), flush=True)\n" + KILL)
    process = int(done.stdout)
    assert not states.conclude(tmp_path / "run", process + 1, Ending.DIED, "another")
    with sonde.record(tmp_path / "run"):  # goes on with the run
        assert not states.conclude(tmp_path / "run", process, Ending.TERMINATED, "SIGTERM")
    assert sonde.load(tmp_path / "run").state.ending is Ending.FINISHED
    process = int(ended(tmp_path / "other", "print(os.getpid(), flush=True)\n" + KILL).stdout)
    assert states.conclude(tmp_path / "other", process, Ending.TERMINATED, "SIGTERM")
    assert not states.conclude(tmp_path / "other", process, Ending.DIED, "")
    state = sonde.load(tmp_path / "other").state
    assert (state.ending, state.reason, state.steps) == (Ending.TERMINATED, "SIGTERM", 99)
    assert not states.conclude(tmp_path / "nowhere", process, Ending.DIED, "")


def test_a_handler_of_the_program_is_left_alone(tmp_path: Path) -> None:
    code = """
    import os, signal, sys
    import sonde
    signal.signal(signal.SIGTERM, lambda *_: print("checkpoint saved"))
    run = sonde.record(sys.argv[1])
    run.log({"loss": 1.0}, step=0)
    os.kill(os.getpid(), signal.SIGTERM)
    run.log({"loss": 1.0}, step=1)
    run.close()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "checkpoint saved\n"), done.stderr
    run = sonde.load(tmp_path / "run")
    assert run.state.ending is Ending.FINISHED
    assert run.steps == 1


def test_the_traceback_of_a_crash_is_printed_as_without_sonde(tmp_path: Path) -> None:
    done = ended(tmp_path / "run", CRASH)
    assert done.stderr.startswith("Traceback (most recent call last):")
    assert done.stderr.rstrip().endswith("RuntimeError: the loss is gone")


def test_hooks_of_the_process_are_gone_after_close(tmp_path: Path) -> None:
    hook, handler = sys.excepthook, signal.getsignal(signal.SIGTERM)
    with sonde.record(tmp_path / "run") as run:
        assert sys.excepthook is not hook
        run.log({"loss": 1.0}, step=0)
    assert sys.excepthook is hook
    assert signal.getsignal(signal.SIGTERM) is handler


def test_two_open_runs_are_both_closed_at_exit(tmp_path: Path) -> None:
    body = f"""
    second = sonde.record({str(tmp_path / "second")!r})
    second.log({{"loss": 2.0}}, step=0)
    """
    assert ended(tmp_path / "first", body).returncode == 0
    for name in ("first", "second"):
        assert sonde.load(tmp_path / name).state.ending is Ending.EXITED


def test_a_forked_child_neither_records_nor_closes_its_parents_run(tmp_path: Path) -> None:
    body = """
    child = os.fork()
    if child == 0:
        run.log({"loss": 0.0}, step=500)
        run.event("note")
        print(run.flush())
        sys.exit(0)
    os.waitpid(child, 0)
    run.log({"loss": 101.0}, step=100)
    run.close()
    """
    done = ended(tmp_path / "run", body)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "False\n"
    run = sonde.load(tmp_path / "run")
    assert run.state.ending is Ending.FINISHED
    assert run.series("loss").step.tolist() == list(range(101))
    assert not run.events()


def test_a_child_that_outlives_its_parent_does_not_keep_the_run_alive(tmp_path: Path) -> None:
    body = """
    run.flush()
    if (child := os.fork()) == 0:
        os.close(0); os.close(1); os.close(2)
        time.sleep(60)
        os._exit(0)
    print(child, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    """
    done = ended(tmp_path / "run", body)
    assert done.returncode == -signal.SIGKILL
    ending = sonde.load(tmp_path / "run").state.ending
    os.kill(int(done.stdout), signal.SIGKILL)  # it was still there
    assert ending is Ending.DIED


def test_the_process_of_a_live_run_is_told_from_a_dead_one(tmp_path: Path) -> None:
    with sonde.record(tmp_path / "run") as writer:
        writer.log({"loss": 1.0}, step=0)
        assert sonde.load(tmp_path / "run").state.ending is Ending.LIVE
    assert sonde.load(tmp_path / "run").state.ending is Ending.FINISHED


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_worker_processes_leave_the_run_alone(tmp_path: Path, method: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent(f"""
        import multiprocessing, sys
        import sonde

        def work(number):
            return number * number

        if __name__ == "__main__":
            with sonde.record({os.fspath(tmp_path / "run")!r}) as run:
                run.log({{"loss": 1.0}}, step=0)
                with multiprocessing.get_context({method!r}).Pool(2) as pool:
                    print(sum(pool.map(work, range(5))))
                run.log({{"loss": 0.5}}, step=1)
        """)
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "30\n"), done.stderr
    run = sonde.load(tmp_path / "run")
    assert run.state.ending is Ending.FINISHED
    assert run.series("loss").step.tolist() == [0, 1]
