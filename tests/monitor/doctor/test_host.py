"""Findings while a training runs: those of a replay, in the store, to the callback and from `findings()`."""

import copy
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import sonde
from sonde.core.findings import Finding
from sonde.core.frames import Columns, Frame
from sonde.monitor.doctor.connections import BEHIND_BYTES, CONNECT
from sonde.monitor.doctor.host import Host
from sonde.monitor.watch import Watch, watch

from ..loops import batches, loss_of, model
from .processes import children

PLACES = ("thread", "process")


def train(
    run: Path, *, lr: float = 0.05, steps: int = 120, poison: int = -1, **settings: Any
) -> tuple[Watch, nn.Module]:
    """A small training; at step `poison` an input is NaN."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    settings = {"console": "quiet", "strict": True, **settings}
    with watch(net, optimizer, run=run, **settings) as watched:
        for step, (x, y) in enumerate(watched.data(list(batches(steps)))):
            if step == poison:
                x = torch.full_like(x, float("nan"))
            loss = loss_of(net, (x, y))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            watched.step(loss)
    return watched, net


def plain(findings: Any) -> list[Any]:
    return [finding.to_json() for finding in findings]


@pytest.mark.parametrize("doctor", PLACES)
def test_findings_are_those_of_a_replay(tmp_path: Path, doctor: str) -> None:
    told: list[Finding] = []
    watched, _ = train(tmp_path / "run", lr=30.0, settings={"doctor": doctor}, on_finding=told.append)
    assert any(finding.severity.is_alarm for finding in watched.findings())
    assert plain(watched.findings()) == plain(sonde.diagnose(tmp_path / "run"))
    stored = [event.data for event in sonde.load(tmp_path / "run").events("finding")]
    assert [data["code"] for data in stored] == [finding.code for finding in told]
    assert {finding.code for finding in told} == {finding.code for finding in watched.findings()}


@pytest.mark.parametrize("doctor", PLACES)
def test_a_poisoned_batch_is_told_while_the_training_runs(tmp_path: Path, doctor: Any) -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    told: list[Finding] = []
    with watch(
        net, optimizer, run=tmp_path, console="quiet", settings={"doctor": doctor}, on_finding=told.append
    ) as watched:
        for step, (x, y) in enumerate(watched.data(batches(400))):
            loss = loss_of(net, (x if step != 30 else x / 0, y))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            watched.step(loss)
            if any(finding.severity.is_alarm for finding in told):
                break
            time.sleep(0.005 if step > 30 else 0)
        else:
            pytest.fail("nothing was told before the end")


def test_nothing_is_judged_where_it_is_off(tmp_path: Path) -> None:
    watched, _ = train(tmp_path / "run", lr=30.0, settings={"doctor": "off"})
    assert watched.findings() == ()
    assert sonde.load(tmp_path / "run").events("finding") == []


@pytest.mark.parametrize(
    ("doctor", "error"),
    [("thread", RuntimeError), ("process", RuntimeError), ("thread", SystemExit), ("process", SystemExit)],
)
def test_a_function_that_fails_stops_neither_training_nor_findings(
    tmp_path: Path, doctor: str, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    called: list[str] = []

    def fail(finding: Finding) -> None:
        called.append(finding.code)
        raise error("mine")

    watched, _ = train(tmp_path / "run", lr=30.0, settings={"doctor": doctor}, on_finding=fail)
    found = [finding for finding in watched.findings() if finding.code != "SYS006"]
    replayed = sonde.diagnose(tmp_path / "run")
    assert plain(found) == plain(finding for finding in replayed if finding.code != "SYS006")
    assert {finding.code for finding in found} <= set(called)
    (warning,) = [record.getMessage() for record in caplog.records if "mine" in record.getMessage()]
    assert "findings go on" in warning
    (event,) = sonde.load(tmp_path / "run").events("monitor-problem")
    assert "`on_finding` failed" in event.data["reason"]
    is_judged = event.step is not None  # else it failed when the training was closed
    assert ("SYS006" in {finding.code for finding in replayed}) == is_judged


def test_settings_of_rules_reach_the_doctor(tmp_path: Path) -> None:
    watched, _ = train(tmp_path / "a", lr=30.0, settings={"doctor": "process"})
    codes = {finding.code for finding in watched.findings()}
    without, _ = train(tmp_path / "b", lr=30.0, settings={"doctor": "process", "rules": dict.fromkeys(codes, False)})
    assert not codes & {finding.code for finding in without.findings()}


def test_a_wrong_setting_is_refused_before_anything_is_recorded(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="GRD001"):
        train(tmp_path / "run", settings={"rules.GRD001.grwth": 3})
    assert not (tmp_path / "run").exists()


def test_an_alarm_asks_for_a_sweep(tmp_path: Path) -> None:
    train(tmp_path / "run", lr=30.0, steps=400, settings={"doctor": "thread"})
    assert sonde.load(tmp_path / "run").events("sweep")


def test_a_doctor_that_is_killed_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    before = children()
    with watch(net, optimizer, run=tmp_path, console="quiet", settings={"doctor": "process"}) as watched:
        (doctor,) = children() - before
        for step, batch in enumerate(batches(200)):
            loss = loss_of(net, batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            watched.step(loss)
            if step == 50:
                os.kill(doctor, signal.SIGKILL)
    assert len(sonde.load(tmp_path).series("loss").step) == 200
    assert caplog.text.count("come no more") == 1


def test_nothing_is_left_of_a_watch_that_could_not_be_set_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("no probes today")

    monkeypatch.setattr("sonde.monitor.setup.ProbeSet", fail)
    before = set(threading.enumerate())
    with pytest.raises(RuntimeError, match="no probes today"):
        train(tmp_path / "run", settings={"doctor": "process"})
    assert set(threading.enumerate()) <= before


def test_no_process_is_left_when_the_training_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os, sonde, torch\n"
        "from pathlib import Path\n"
        "net = torch.nn.Linear(2, 1)\n"
        "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "watch = sonde.watch(net, optimizer, run='run', console='quiet', settings={'doctor': 'process'})\n"
        "for _ in range(20):\n"
        "    loss = net(torch.ones(1, 2)).square().mean()\n"
        "    loss.backward()\n"
        "    optimizer.step()\n"
        "    watch.step(loss)\n"
        "print(*(path.read_text() for path in Path('/proc/self/task').glob('*/children')), flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    pid = int(done.stdout)
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]:
        assert time.monotonic() < deadline, "the doctor goes on without a training"
        time.sleep(0.05)


def test_a_worker_that_outlives_the_training_does_not_keep_the_doctor() -> None:
    """It has inherited the pipe to the doctor, so that the doctor's input does not end."""
    code = (
        "import os, subprocess, sys, time\n"
        "command = [sys.executable, '-m', 'sonde.monitor.doctor.process', str(os.getpid())]\n"
        "doctor = subprocess.Popen(command, stdin=subprocess.PIPE)\n"
        "os.close(1)\n"  # the doctor alone has it
        "from sonde.monitor.doctor import wire\n"
        "os.write(doctor.stdin.fileno(), wire.Packer().pack(wire.Message(wire.SAVE, None)))\n"
        "if not os.fork():\n"
        "    training = os.getppid()\n"
        "    while os.getppid() == training: time.sleep(0.01)\n"
        "    os.read(0, 1); os._exit(0)\n"  # until the test is over
        "os.read(0, 1)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as training:
        assert training.stdin is not None
        assert training.stdout is not None
        assert b"state" in training.stdout.readline()  # the doctor is there
        training.stdin.write(b".")
        training.stdin.flush()
        assert training.wait(60) == -signal.SIGKILL
        over, _, _ = select.select([training.stdout], [], [], 4.0)  # it ends when the doctor does, which has it
        assert over, "the doctor goes on without a training"
        assert training.stdout.read() == b""
        training.stdin.close()


def test_a_resumed_training_is_judged_as_one_that_never_stopped(tmp_path: Path) -> None:
    """The rules go on with what they knew: no warm-up, no finding twice, as a replay of both sessions has it."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=30.0)
    everything = list(batches(200))
    first = watch(net, optimizer, run=tmp_path / "parts", console="quiet", settings={"doctor": "thread"}, strict=True)
    run_some(first, net, optimizer, everything[:100])
    checkpoint = copy.deepcopy((net.state_dict(), optimizer.state_dict(), first.state_dict()))
    first.close()
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=30.0)
    net.load_state_dict(checkpoint[0])
    optimizer.load_state_dict(checkpoint[1])
    second = watch(net, optimizer, run=tmp_path / "parts", console="quiet", settings={"doctor": "thread"}, strict=True)
    second.load_state_dict(checkpoint[2])
    run_some(second, net, optimizer, everything[100:])
    second.close()
    assert any(finding.severity.is_alarm and finding.first_step < 100 for finding in second.findings())
    assert plain(second.findings()) == plain(sonde.diagnose(tmp_path / "parts"))


def run_some(watched: Watch, net: nn.Module, optimizer: torch.optim.Optimizer, some: Any) -> None:
    for batch in watched.data(some):
        loss = loss_of(net, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        watched.step(loss)


@pytest.mark.parametrize("doctor", PLACES)
def test_nothing_waits_once_the_doctor_has_caught_up(tmp_path: Path, doctor: Any) -> None:
    columns = Columns("step", ("loss", "lr", "grad/norm"))
    with sonde.record(tmp_path / "run") as writer:
        host = Host(writer, CONNECT[doctor])
        for step in range(1, 1001):
            host.append(Frame(columns, step, 0.0, np.array([1 / step, 0.1, 1.0], np.float32)))
        state, step = host.state(60.0)
        assert (state["num_steps"], step) == (999, 1000)  # the last one is judged when the next begins, or at the end
        host.close(60.0)
        assert host.waiting_bytes == 0


def test_a_doctor_that_is_far_behind_is_spared_steps_with_a_usual_loss_and_norm(tmp_path: Path) -> None:
    columns = Columns("step", ("loss", "loss/ema", "loss/variance", "grad/norm"))
    wide = Columns("layers", tuple(f"grad/norm@{i}" for i in range(10_000)))
    before = children()
    with sonde.record(tmp_path / "run") as writer:
        host = Host(writer, CONNECT["process"])
        (doctor,) = children() - before
        host.append(Frame(columns, 1, 0.0, np.array([1.1, 1.0, 0.01, 1.0], np.float32)))
        os.kill(doctor, signal.SIGSTOP)
        while host.waiting_bytes < 2 * BEHIND_BYTES:  # more than its pipe takes
            host.append(Frame(wide, 1, 0.0, np.ones(wide.width, np.float32)))
        for step in range(2, 31):
            loss = {13: 9.0, 14: np.nan}.get(step, 1.1)
            row = [loss, 1.0, 0.01, 10.0 if step % 8 == 0 else 1.0]
            host.append(Frame(columns, step, 0.0, np.array(row, np.float32)))
        os.kill(doctor, signal.SIGCONT)
        while host.waiting_bytes:
            host.state(1.0)
        for step in range(31, 41):
            host.append(Frame(columns, step, 0.0, np.array([1.1, 1.0, 0.01, 1.0], np.float32)))
        state, last = host.state(60.0)
        host.close(60.0)
    judged = {1, 8, 13, 14, 16, 24, *range(31, 40)}  # the last one is judged when the next begins, or at the end
    assert (state["num_steps"], last) == (len(judged), 40)
    run = sonde.load(tmp_path / "run")
    assert len(run.series("loss").step) == 40
    assert [event.step for event in run.events("not-measured")] == [2]


@pytest.mark.parametrize("doctor", PLACES)
def test_ranks_that_drift_apart_are_found_before_the_training_ends(tmp_path: Path, doctor: Any) -> None:
    columns = Columns("compared", ("weight/norm", "time/step", "time/backward"))
    rows = [Frame(columns, step, 0.0, np.array([3 + step / 60, 1.0, 0.7], np.float32)) for step in range(1, 61)]
    with sonde.record(tmp_path / "run" / "ranks" / "1") as writer:
        for frame in rows:
            drift = np.array([1e-3 * max(frame.step - 20, 0), 0, 0], np.float32)
            writer.append(Frame(columns, frame.step, 0.0, frame.values + drift))
    found: list[Finding] = []
    with sonde.record(tmp_path / "run") as writer:
        place = (tmp_path / "run", None)
        host = Host(writer, CONNECT[doctor], on_finding=found.append, place=lambda: place, together=True)
        for frame in rows:
            host.append(frame)
        host.flush()
        host.close(60.0)
    (finding,) = [finding for finding in found if finding.code == "DST002"]
    assert (finding.first_step, finding.causes[0].cause) == (21, "rank-divergence")
