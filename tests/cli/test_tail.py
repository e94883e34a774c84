import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.console.terminal import Terminal
from tests.console.views import finding

import sonde
from sonde.core.findings import Severity

Call = Callable[..., subprocess.CompletedProcess[str]]

RECORDING = """
import os, time, sonde
with sonde.record("run") as writer:
    writer.event("length", data={"total_steps": 1000})
    step = 0
    while not os.path.exists("enough"):
        step += 1
        writer.log({"loss": 4.0 / step, "lr": 0.1, "grad/norm@a.weight": 1.0, "grad/norm@b.weight": 0.1}, step=step)
        writer.flush()
        if step == 20:
            open("begun", "w").close()
        time.sleep(0.01)
"""


@pytest.fixture
def recording(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that records into `run` until there is a file `enough`; it has begun."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", RECORDING], cwd=tmp_path, env=environ) as process:
        while not (tmp_path / "begun").exists():
            assert process.poll() is None
        yield process
        process.kill()


def test_one_look_shows_the_view(call: Call, runs: Path) -> None:
    outcome = call("tail", runs / "healthy", "--once")
    assert outcome.returncode == 0
    rows = outcome.stdout.splitlines()
    assert re.match(r"── Sonde \S*healthy ─+ finished 0:\d\d ──$", rows[0])
    assert rows[1].startswith("step     100")
    assert re.match(r"loss     0.04  █▄", rows[2])
    assert rows[3].split() == ["lr", "0.1", "grad", "norm", "1"]
    assert rows[4].endswith("1 layer, gradient norm 0.5 to 0.5")
    assert outcome.stderr == f"sonde: {runs / 'healthy'}: finished after 100 steps\n"


def test_one_look_in_one_line(call: Call, runs: Path) -> None:
    outcome = call("tail", runs / "broken", "--once", "--lines")
    assert re.match(r"step 100( .*)?  loss NaN  no open finding\n$", outcome.stdout)


def test_a_run_without_rows(call: Call, tmp_path: Path) -> None:
    with sonde.record(tmp_path / "run"):
        pass
    outcome = call("tail", tmp_path / "run")
    assert (outcome.returncode, outcome.stdout) == (0, "step 0  no open finding\n")


def test_findings_are_shown_until_they_are_over(call: Call, tmp_path: Path) -> None:
    with sonde.record(tmp_path / "run") as writer:
        writer.log({"loss": 1.0, "grad/norm@a.weight": 1.0, "grad/norm@b.weight": 1.0}, step=1)
        for told in (
            finding("AAA001", "over", Severity.CRITICAL, 3),
            finding("AAA002", "open", Severity.WARNING, 4, "b.weight"),
            finding("AAA003", "opened-anew", Severity.WARNING, 40),
            finding("AAA004", "of-a-line-that-was-left", Severity.CRITICAL, 80),
            finding("AAA005", "only-information", Severity.INFO, 5),
        ):
            writer.event("finding", step=told.last_step, data=told.to_json())
        writer.event("finding", step=1, data={"text": "somebody else's"})
        writer.event("finding-closed", step=9, data={"code": "AAA001", "first_step": 3})
        writer.event("finding-closed", step=30, data={"code": "AAA003", "first_step": 20})
        writer.event("resumed", step=60)
    text = call("tail", tmp_path / "run", "--once").stdout
    assert re.findall(r"AAA\d+", text) == ["AAA003", "AAA002"]
    assert "! AAA002 open  since step 4  b.weight" in text
    assert re.search(r"^layers   .!  2 layers: ! warning$", text, re.MULTILINE)


def test_lines_follow_a_run_until_it_ends(tmp_path: Path, recording: "subprocess.Popen[bytes]") -> None:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "sonde", "tail", "run", "--interval", "0.1"]
    with subprocess.Popen(command, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, text=True) as tail:
        assert tail.stdout is not None
        first, second = tail.stdout.readline(), tail.stdout.readline()
        (tmp_path / "enough").touch()
        rest = tail.stdout.read().splitlines()
    assert tail.returncode == 0
    steps = [int(re.match(r"step (\d+)/1,000 ", line).group(1)) for line in (first, second, *rest)]  # type: ignore[union-attr]
    assert steps == sorted(set(steps))
    assert steps[-1] == sonde.load(tmp_path / "run").steps


def test_a_terminal_is_drawn_on_until_the_run_ends(tmp_path: Path, recording: "subprocess.Popen[bytes]") -> None:
    terminal = Terminal()

    def look(terminal: Terminal) -> None:
        if sum("█" in text for screen in terminal.seen[-1:] for text in screen) and terminal.lines[0].endswith("──"):
            (tmp_path / "enough").touch()

    code = "import sys; from sonde.cli.main import main; sys.exit(main(['tail', 'run', '--interval', '0.2']))"
    assert terminal.run(code, cwd=tmp_path, on_output=look) == 0
    assert any("live" in screen[0] for screen in terminal.seen)
    assert re.match(r"── Sonde run ─+ finished \d:\d\d ──", terminal.lines[0])
    assert "sonde: run: finished after" in "\n".join(terminal.lines)
    terminal.close()


def test_a_run_that_was_killed_says_so(call: Call, tmp_path: Path, recording: "subprocess.Popen[bytes]") -> None:
    recording.kill()
    recording.wait()
    outcome = call("tail", tmp_path / "run")
    assert outcome.returncode == 0
    assert re.search(r"died after \d+ steps, .*: its process is gone, and nobody said why", outcome.stderr)


def test_ctrl_c_leaves_a_run_that_goes_on(tmp_path: Path, recording: "subprocess.Popen[bytes]") -> None:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "sonde", "tail", "run", "--interval", "0.1"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as tail:
        assert tail.stdout is not None
        tail.stdout.readline()
        tail.send_signal(signal.SIGINT)
        _, said = tail.communicate()
    assert (tail.returncode, said) == (130, "sonde: interrupted\n")
    assert recording.poll() is None


@pytest.mark.parametrize(
    ("words", "said"), [(("nowhere",), "nowhere does not exist"), ((".", "--interval", "0"), "interval")]
)
def test_wrong_usage_is_one_line(call: Call, words: tuple[str, ...], said: str) -> None:
    outcome = call("tail", *words)
    assert outcome.returncode == 2
    assert said in outcome.stderr
    assert outcome.stderr.count("\n") == 1
