"""What a person sees at a real terminal, and what a file gets that is none."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.console.terminal import Terminal

from sonde.console.drawing import ROWS

START = "from tests.console.fake import *\nimport sys\nboard, display = display()\n"
RULE = re.compile(r"^── Sonde runs/fake ─+ live \d+:\d\d ──$")


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal()
    yield terminal
    terminal.close()


def when(condition: Callable[[Terminal], bool], file: Path) -> Callable[[Terminal], None]:
    """Makes a file as soon as something is on the screen."""

    def look(terminal: Terminal) -> None:
        if not file.exists() and condition(terminal):
            file.touch()

    return look


def has_panel(terminal: Terminal) -> bool:
    return bool(RULE.match(terminal.lines[-ROWS])) and terminal.lines[-ROWS + 4].startswith("layers")


class Later:
    """Whether the panel has been there while this many writings came, and still is."""

    def __init__(self, num: int) -> None:
        self._left = num

    def __call__(self, terminal: Terminal) -> bool:
        self._left -= has_panel(terminal)
        return self._left < 0 and has_panel(terminal)


def test_prints_scroll_above_the_panel_and_stay_whole(terminal: Terminal, tmp_path: Path) -> None:
    code = START + "last = train(board, lambda step: print('line', step))\ndisplay.close('Sonde: over')\nprint(last)"
    assert terminal.run(code, cwd=tmp_path, on_output=when(Later(60), tmp_path / "seen")) == 0
    said = [text for text in terminal.scrolled if text]
    last = int(said[-1])
    assert said[:-2] == [f"line {step}" for step in range(1, last + 1)]
    assert said[-2] == "Sonde: over"
    assert terminal.screen.margins is None or terminal.screen.margins.bottom == terminal.rows - 1


def test_the_panel_shows_the_training(terminal: Terminal, tmp_path: Path) -> None:
    shown: list[list[str]] = []

    def look(terminal: Terminal) -> bool:
        if has_panel(terminal) and "320 samples/s" in terminal.lines[-ROWS + 3]:
            shown.append(terminal.lines[-ROWS:])
        return bool(shown)

    assert (
        terminal.run(START + "train(board)\ndisplay.close()", cwd=tmp_path, on_output=when(look, tmp_path / "seen"))
        == 0
    )
    panel = shown[0]
    assert re.match(r"step     \d+/5,000  ─+  [01]%", panel[1])
    assert re.match(r"loss     [\d.]+  EMA [\d.]+  █", panel[2])
    assert re.match(r"         lr 0.1  grad norm 1", panel[3])
    assert panel[4].endswith("12 layers, gradient rms 0.001 to 0.009")
    assert panel[5] == "findings none open"
    assert not any("Sonde" in text for text in terminal.scrolled)


def test_stdout_elsewhere_gets_what_the_script_prints_and_nothing_else(terminal: Terminal, tmp_path: Path) -> None:
    code = START + "last = train(board, lambda step: print('line', step))\ndisplay.say('said')\ndisplay.close()"
    with (tmp_path / "out").open("wb") as out:
        assert terminal.run(code, cwd=tmp_path, stdout=out.fileno(), on_output=when(has_panel, tmp_path / "seen")) == 0
    lines = (tmp_path / "out").read_text().splitlines()
    assert lines == [f"line {step}" for step in range(1, len(lines) + 1)]
    assert "said" in terminal.lines


def test_a_bar_that_rewrites_its_line_stays_whole(terminal: Terminal, tmp_path: Path) -> None:
    code = START + (
        "def bar(step): sys.stderr.write(f'\\rbar {step:4} ' + '#' * 50); sys.stderr.flush()\n"
        "last = train(board, bar)\ndisplay.close()\nprint()\nprint('last', last)"
    )
    assert terminal.run(code, cwd=tmp_path, on_output=when(Later(60), tmp_path / "seen")) == 0
    said = [text for text in terminal.scrolled if text]
    assert said == [f"bar {int(said[-1].split()[1]):4} " + "#" * 50, said[-1]]
    for screen in terminal.seen:
        assert sum(text.startswith("bar") for text in screen) <= 1


def test_nested_bars_of_tqdm_prints_and_what_we_say_leave_each_other_whole(terminal: Terminal, tmp_path: Path) -> None:
    pytest.importorskip("tqdm")
    code = START + (
        "from tqdm import tqdm\n"
        "outer = tqdm(total=5000, desc='outer', ncols=60)\n"
        "inner = tqdm(total=5000, desc='inner', ncols=60, leave=False)\n"
        "def each(step):\n"
        "    outer.update(); inner.update()\n"
        "    if step == 20: tqdm.write('written by tqdm')\n"
        "    if step == 30: display.say('GRD001 said by us\\n  more of it')\n"
        "train(board, each)\ndisplay.say('last words')\ndisplay.close()\ninner.close(); outer.close()\nprint('end')"
    )

    later = Later(60)

    def look(terminal: Terminal) -> bool:
        return any("said by us" in text for text in terminal.lines) and later(terminal)

    assert terminal.run(code, cwd=tmp_path, on_output=when(look, tmp_path / "seen")) == 0
    said = [text for text in terminal.scrolled if text]
    assert [text for text in said if "it/s" not in text and "?it" not in text] == [
        "written by tqdm",
        "GRD001 said by us",
        "  more of it",
        "last words",
        "end",
    ]
    bars = [text for text in said if "it/s" in text]
    assert len(bars) == 1
    assert re.match(r"outer:   \d%\|.*\| \d+/5000 \[.*it/s\]$", bars[0])


def test_what_was_on_the_line_when_the_panel_came_goes_on_there(terminal: Terminal, tmp_path: Path) -> None:
    code = START + "print('half a line, ', end='', flush=True)\ntrain(board)\nprint('the other half')\ndisplay.close()"
    assert terminal.run(code, cwd=tmp_path, on_output=when(has_panel, tmp_path / "seen")) == 0
    assert [text for text in terminal.scrolled if text] == ["half a line, the other half"]


@pytest.mark.parametrize("size", [(24, 60), (45, 120)], ids=["smaller", "larger"])
def test_the_panel_follows_the_size_of_the_terminal(terminal: Terminal, tmp_path: Path, size: tuple[int, int]) -> None:
    code = START + (
        "each = lambda step: print('line', step)\nlast = train(board, each, until='placed')\n"
        "train(board, each, until='seen', first=last + 1)\ndisplay.close()"
    )

    def look(terminal: Terminal) -> None:
        if (tmp_path / "placed").exists():
            when(has_panel, tmp_path / "seen")(terminal)
        elif has_panel(terminal):
            terminal.resize(*size)
            (tmp_path / "placed").touch()

    assert terminal.run(code, cwd=tmp_path, on_output=look) == 0
    assert (tmp_path / "seen").exists()
    assert not any(RULE.match(text) for text in terminal.lines)


def test_a_terminal_that_is_too_low_is_left_alone(tmp_path: Path) -> None:
    terminal = Terminal(rows=12)
    code = START + "(__import__('pathlib').Path('seen')).touch()\ntrain(board)\ndisplay.close('over')"
    assert terminal.run(code, cwd=tmp_path) == 0
    assert terminal.raw == b"over\r\n"
    terminal.close()


@pytest.mark.parametrize(
    ("environ", "unwanted"),
    [
        ({"PYTHONIOENCODING": "ascii"}, rb"[\x80-\xff]"),
        ({"NO_COLOR": "1"}, rb"\x1b\[[0-9;]*(3[0-7]|9[0-7])m"),
    ],
    ids=["no-unicode", "no-colour"],
)
def test_a_panel_without_unicode_or_colour(
    terminal: Terminal, tmp_path: Path, environ: dict[str, str], unwanted: bytes
) -> None:
    code = START + "train(board)\ndisplay.close()"

    def look(terminal: Terminal) -> bool:
        return "Sonde runs/fake" in terminal.lines[-ROWS] and terminal.lines[-ROWS + 4].startswith("layers")

    assert terminal.run(code, cwd=tmp_path, environ=environ, on_output=when(look, tmp_path / "seen")) == 0
    assert b"layers" in terminal.raw
    assert not re.search(unwanted, terminal.raw)


def test_a_second_display_leaves_the_panel_to_the_first(terminal: Terminal, tmp_path: Path) -> None:
    code = START + (
        "from tests.console import fake\nother, second = fake.display()\n"
        "take(other, 1)\ntrain(board)\nsecond.close('second')\ndisplay.close('first')"
    )

    def look(terminal: Terminal) -> bool:
        return has_panel(terminal) and any(text.startswith("Sonde: step 1/5,000") for text in terminal.lines)

    assert terminal.run(code, cwd=tmp_path, on_output=when(look, tmp_path / "seen")) == 0
    assert [text for text in terminal.lines if text][-2:] == ["second", "first"]


def test_a_terminal_that_goes_away_breaks_nothing(terminal: Terminal, tmp_path: Path) -> None:
    code = START + (
        "import os\nlast = train(board)\ndisplay.say('nobody hears')\n"
        "train(board, until='gone', first=last + 1)\ndisplay.close('bye')\nopen('finished', 'w').close()"
    )

    def look(terminal: Terminal) -> None:
        when(has_panel, tmp_path / "seen")(terminal)

    process = terminal.start(code, cwd=tmp_path)
    terminal.read(process, look, until=lambda: (tmp_path / "seen").exists())
    terminal.close()
    (tmp_path / "gone").touch()
    assert process.wait(30) == 0
    assert (tmp_path / "finished").exists()


def test_a_job_in_the_background_draws_nothing_and_is_not_stopped(terminal: Terminal, tmp_path: Path) -> None:
    job = START + "train(board, until='ready')\ndisplay.say('said')\ndisplay.close('over')"
    # A shell of its own, whose terminal stops jobs in the background that write.
    code = f"""
import fcntl, os, pathlib, signal, subprocess, sys, termios
os.setsid()
fcntl.ioctl(2, termios.TIOCSCTTY, 0)
modes = termios.tcgetattr(2)
modes[3] |= termios.TOSTOP
termios.tcsetattr(2, termios.TCSANOW, modes)
job = subprocess.Popen([sys.executable, "-c", {job!r}], process_group=0)
pathlib.Path("ready").touch()
_, status = os.waitpid(job.pid, os.WUNTRACED)
print("stopped" if os.WIFSTOPPED(status) else f"status {{os.waitstatus_to_exitcode(status)}}")
job.returncode = 0
"""
    assert terminal.run(code, cwd=tmp_path) == 0
    assert terminal.raw == b"status 0\r\n"


def test_a_child_that_is_forked_leaves_the_terminal_alone(terminal: Terminal, tmp_path: Path) -> None:
    code = START + (
        "import os\nlast = train(board)\npid = os.fork()\n"
        "if not pid:\n    display.forget(); display.close('child'); os._exit(7)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\ndisplay.close('parent')"
    )
    assert terminal.run(code, cwd=tmp_path, on_output=when(has_panel, tmp_path / "seen")) == 0
    assert [text for text in terminal.lines if text] == ["7", "parent"]


def run(code: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, check=False, timeout=60)


def test_without_a_terminal_there_is_a_line_now_and_then(tmp_path: Path) -> None:
    code = (
        "from tests.console import fake\nimport pathlib, sys\nboard, display = fake.display(mode='lines')\n"
        "class Seen:\n"
        "    def write(self, text):\n"
        "        pathlib.Path('seen').touch()\n"
        "        return sys.__stderr__.write(text)\n"
        "    def __getattr__(self, name): return getattr(sys.__stderr__, name)\n"
        "sys.stderr = Seen()\n"
        "fake.train(board)\ndisplay.say('said')\ndisplay.close('over')\nprint('out')\n"
    )
    done = run(code, tmp_path)
    assert done.returncode == 0
    assert done.stdout == "out\n"
    first, *_, said, over = done.stderr.splitlines()
    assert re.match(
        r"Sonde: step \d+/5,000 \(0%\)  .*loss [\d.]+ \(EMA [\d.]+\)  lr 0.1  grad norm 1  320 samples/s", first
    )
    assert (said, over) == ("said", "over")
    assert "\x1b" not in done.stderr


def test_before_the_first_step_no_line_is_printed(tmp_path: Path) -> None:
    code = (
        "from tests.console import fake\nimport threading\n"
        "board, display = fake.display(mode='lines', interval_s=0.01)\n"
        "threading.Event().wait(0.2)\ndisplay.close()\n"
    )
    assert run(code, tmp_path).stderr == ""


@pytest.mark.parametrize("closed", ["sys.stderr.close()", "sys.stderr = None", "os.close(2)"])
def test_a_stream_that_is_closed_breaks_nothing(tmp_path: Path, closed: str) -> None:
    code = (
        "from tests.console import fake\nimport os, sys\nboard, display = fake.display(mode='lines')\n"
        f"fake.take(board, 1)\n{closed}\ndisplay.say('x')\ndisplay.close('bye')\nprint('out')\n"
    )
    done = run(code, tmp_path)
    assert (done.returncode, done.stdout) == (0, "out\n")


def test_a_view_that_cannot_be_made_is_said_once_and_lines_still_come(tmp_path: Path) -> None:
    code = (
        "from tests.console import fake\nimport logging\nlogging.basicConfig(format='%(message)s')\n"
        "from sonde.console.board import Board\nfrom sonde.console.display import Display\n"
        "board = Board('run', began=0.0)\nfake.take(board, 1)\n"
        "import threading\ncame = threading.Event()\n"
        "def findings(): came.set(); raise ZeroDivisionError\n"
        "display = Display(board, findings, mode='lines', interval_s=0.01)\n"
        "came.wait()\ndisplay.say('said')\ndisplay.close('over')\n"
    )
    done = run(code, tmp_path)
    assert done.returncode == 0
    assert done.stderr.startswith("the training is not shown any more: ZeroDivisionError")
    assert done.stderr.count("not shown") == 1
    assert done.stderr.endswith("said\nover\n")
