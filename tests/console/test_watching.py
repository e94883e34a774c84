"""`sonde.watch(console=...)` at a real terminal and without one."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.console.terminal import Terminal

import sonde
from sonde.console.drawing import ROWS
from sonde.core.frames import Columns, Frame
from sonde.monitor.doctor.connections import CONNECT
from sonde.monitor.doctor.host import Host

TRAINING = """
import os, sys, time, torch, sonde
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
watch = sonde.watch(model, optimizer, run="run", settings={{"doctor": "{doctor}", "total_steps": 3000, {settings}}})
with watch:
    for step in range(1, 3000):
        x = torch.randn(32, 8)
        loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss, samples=32)
        print("loss", step, loss.item())
        {each}
        time.sleep(0.01)
        if os.path.exists("seen"):
            {then}
print("done")
"""


def training(settings: str = "", each: str = "pass", then: str = "break", doctor: str = "off") -> str:
    return TRAINING.format(settings=settings, each=each, then=then, doctor=doctor)


def seen(condition: Callable[[Terminal], bool], folder: Path) -> Callable[[Terminal], None]:
    return lambda terminal: (folder / "seen").touch() if condition(terminal) else None


def has_panel(terminal: Terminal) -> bool:
    rows = terminal.lines[-ROWS:]
    return rows[0].startswith("── Sonde run ─") and "  2 layers, gradient rms " in rows[4]


def test_the_view_is_live_at_a_terminal_and_leaves_the_losses_that_were_printed(tmp_path: Path) -> None:
    terminal = Terminal()
    assert terminal.run(training(), cwd=tmp_path, on_output=seen(has_panel, tmp_path)) == 0
    assert (tmp_path / "seen").exists()
    *losses, about, done = [text for text in terminal.scrolled if text]
    assert [text.split()[:2] for text in losses] == [["loss", str(i)] for i in range(1, len(losses) + 1)]
    assert re.match(rf"Sonde: run: {len(losses)} steps; watching took", about)
    assert done == "done"
    terminal.close()


def test_an_exception_finds_the_terminal_as_it_was(tmp_path: Path) -> None:
    terminal = Terminal()
    code = training(then="raise RuntimeError('the user is to blame')")
    assert terminal.run(code, cwd=tmp_path, on_output=seen(has_panel, tmp_path)) == 1
    said = [text for text in terminal.scrolled if text]
    assert said[-1] == "RuntimeError: the user is to blame"
    assert not any("── Sonde" in text for text in said)
    terminal.close()


def newest(terminal: Terminal) -> int:
    """The last step whose loss was printed."""
    return max(int(text.split()[1]) for text in terminal.lines if re.match(r"loss \d+ \d", text))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_finds_the_terminal_as_it_was(tmp_path: Path, number: signal.Signals) -> None:
    terminal = Terminal()
    # After Ctrl-C the training clears its view; SIGTERM and SIGKILL leave it no time, and the doctor does.
    doctor = "off" if number == signal.SIGINT else "process"
    process = terminal.start(training(doctor=doctor), cwd=tmp_path)
    terminal.read(process, until=lambda: has_panel(terminal))
    first = newest(terminal)
    terminal.read(process, until=lambda: newest(terminal) > first + 100)  # by then the doctor knows of the view
    process.send_signal(number)
    terminal.read(process)
    assert process.returncode == -number
    deadline = time.monotonic() + 30
    while terminal.screen.margins is not None and time.monotonic() < deadline:
        terminal.read(process)
    assert not any("── Sonde" in text for text in terminal.scrolled)
    assert terminal.screen.margins is None
    terminal.close()


def run(code: str, cwd: Path, **environ: str) -> "subprocess.CompletedProcess[str]":
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1", **environ}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=cwd, env=surroundings, capture_output=True, text=True, check=False, timeout=100)


def test_without_a_terminal_there_are_lines_on_stderr_and_stdout_is_the_scripts(tmp_path: Path) -> None:
    done = run(training('"console_s": 0.3', "if step == 150: break"), tmp_path)
    assert done.returncode == 0, done.stderr
    *losses, last = done.stdout.splitlines()
    assert (len(losses), last) == (150, "done")
    first, *_, about = done.stderr.splitlines()
    assert re.match(r"Sonde: step \d+/3,000 \(\d%\)  .*loss [\d.e-]+ \(EMA [\d.e-]+\)  lr 0.01  grad norm ", first)
    assert "samples/s" in first
    assert about.startswith("Sonde: run: 150 steps")
    (event,) = sonde.load(tmp_path / "run").events("length")
    assert event.data == {"total_steps": 3000, "total_epochs": None}


@pytest.mark.parametrize(
    ("settings", "environ"),
    [('"console": "quiet", ', {}), ("", {"RANK": "1", "WORLD_SIZE": "2"})],
    ids=["quiet", "rank-1"],
)
def test_nothing_is_printed_where_nothing_is_wanted(tmp_path: Path, settings: str, environ: dict[str, str]) -> None:
    done = run(training(settings + '"console_s": 0.01', "if step == 20: break"), tmp_path, **environ)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"console_s": 0.0}, "`console_s` must be above 0 seconds, got 0.0"),
        ({"total_epochs": 0}, "`total_epochs` must be at least 1"),
        ({"total_steps": -5}, "`total_steps` must be at least 1"),
        ({"console": "loud"}, "loud"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_recorded(
    tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    model = torch.nn.Linear(2, 1)
    with pytest.raises(ValueError, match=said):
        sonde.watch(model, torch.optim.SGD(model.parameters(), lr=0.1), run=tmp_path / "run", settings=settings)
    assert not (tmp_path / "run").exists()


def test_a_finding_that_is_over_is_an_event_of_the_run(tmp_path: Path) -> None:
    columns = Columns("step", ("loss",))
    found: list[Any] = []
    random = np.random.default_rng(0)
    with sonde.record(tmp_path / "run") as writer:
        host = Host(writer, CONNECT["thread"], on_finding=found.append)
        for step in range(1, 1500):
            loss = 1.0 + 0.01 * random.normal() + 50.0 * (step == 300)
            host.append(Frame(columns, step, float(step), np.array([loss], np.float32)))
        host.close()
    spike = next(finding for finding in found if finding.code == "LOS002")
    closed = [event.data for event in sonde.load(tmp_path / "run").events("finding-closed")]
    assert {"code": "LOS002", "first_step": spike.first_step} in closed
