"""Trainings that are ended from outside: nothing of ours keeps the process, and the run says what happened."""

import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import sonde
from sonde.core import strict_json
from sonde.core.errors import RunNotFound, TagNotFound
from sonde.core.records import Ending
from sonde.monitor.doctor import wire
from sonde.monitor.doctor.wire import Message, Packer

_STEPS = 40
_LONGEST_S = 60.0

_SCRIPT = """
    import asyncio, select, sys, threading
    import torch
    import sonde

    torch.set_num_threads(1)
    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    watch = sonde.watch(net, optimizer, run="run", console="quiet", settings={"doctor": "process"})
    for _ in range(STEPS):
        loss = net(torch.ones(8, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)
    while watch.state_dict()["doctor"] is None:  # it may still be starting
        pass
    print("ready", flush=True)
    WAIT
"""
_FOR_A_LOCK = "lock = threading.Lock(); lock.acquire(); lock.acquire()"
_IN_ASYNCIO = "asyncio.run(asyncio.sleep(1000))"


def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _LONGEST_S
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"


def num_steps(run: Path) -> int:
    try:
        return len(sonde.load(run).series("loss").step)
    except (RunNotFound, TagNotFound):
        return 0


@pytest.mark.parametrize(
    ("launcher", "wait", "number", "ending"),
    [
        ((), _FOR_A_LOCK, signal.SIGTERM, Ending.TERMINATED),
        (("-m", "sonde", "run"), _IN_ASYNCIO, signal.SIGTERM, Ending.TERMINATED),
        ((), "select.select([], [], [])", signal.SIGKILL, Ending.DIED),
    ],
    ids=["terminated-in-c", "terminated-in-asyncio", "killed"],
)
def test_a_training_that_waits_in_c_is_ended_and_the_run_has_all_steps_and_says_how(
    tmp_path: Path, launcher: tuple[str, ...], wait: str, number: signal.Signals, ending: Ending
) -> None:
    script, run = tmp_path / "train.py", tmp_path / "run"
    script.write_text(textwrap.dedent(_SCRIPT).replace("WAIT", wait).replace("STEPS", str(_STEPS)))
    with subprocess.Popen([sys.executable, *launcher, str(script)], cwd=tmp_path, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            until(lambda: num_steps(run) == _STEPS)  # though the main thread does nothing more
            run = run.rename(tmp_path / "renamed")
            process.send_signal(number)
            assert process.wait(_LONGEST_S) == -number
        finally:
            process.kill()
    until(lambda: sonde.load(run).state.reason != "")
    state = sonde.load(run).state
    assert (state.ending, state.reason, state.steps) == (ending, number.name, _STEPS)


_LOUD = """
    import os, sys
    from sonde.monitor.doctor import process, session

    class Loud(session.Session):
        def take(self, message):
            print("what a rule of somebody else's prints")
            super().take(message)

    process.Session = Loud
    sys.argv = ["doctor", str(os.getppid())]
    process.main()
"""


def test_answers_are_whole_where_a_rule_prints() -> None:
    packer = Packer()
    sent = b"".join(packer.pack(message) for message in (Message(wire.SAVE, 7), Message(wire.END, None)))
    command = [sys.executable, "-c", textwrap.dedent(_LOUD)]
    done = subprocess.run(command, input=sent, capture_output=True, check=True, timeout=_LONGEST_S)
    state, last = [strict_json.loads(line) for line in done.stdout.splitlines()]
    assert state["state"][1] == 7
    assert last["all"] == "[]"
