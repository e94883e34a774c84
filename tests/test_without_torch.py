"""PyTorch is an extra: what reads, judges and reports runs without it, and what trains says what to install."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import sonde
from sonde.core.errors import MissingExtra, SondeError

GONE = "import sys; sys.modules['torch'] = None\n"


def run(code: str, *words: object, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """Runs code as where torch is not installed."""
    source = os.pathsep.join(sys.path)
    return subprocess.run(
        [sys.executable, "-c", GONE + code, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": source},
    )


EVERYTHING = """
import sonde
from pathlib import Path
for name in ("a", "b"):
    with sonde.record(name, config={"lr": 0.1}) as writer:
        for step in range(1, 200):
            writer.log({"loss": 2 / step + (5 if name == "b" and step == 150 else 0), "lr": 0.1}, step=step)
read = sonde.load("a")
print(read, read.table().num_rows, len(read.window("loss").step), read.state.ending)
print(len(sonde.diagnose("b")), sonde.report("b").save("report.html"), len(sonde.compare("a", "b").variants))
print(sonde.export("a", "a.csv"), [one.name for one in sonde.runs(".")], str(sonde.explain("LOS002"))[:6])
print(sonde.import_csv("a.csv", "again").steps, sonde.calibrate(["a"]).before)
print(sonde.load("again")._repr_html_()[:5])
"""


def test_recording_reading_judging_and_reporting_need_none(tmp_path: Path) -> None:
    done = run(EVERYTHING, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"{sonde.load(tmp_path / 'a')!r} 199 199 finished".replace(str(tmp_path / "a"), "a")
    assert lines[1] == "1 report.html 2" or lines[1].split()[1:] == ["report.html", "2"]
    assert lines[-1] == "<div>"


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["runs", "."],
        ["show", "a"],
        ["diagnose", "a"],
        ["diagnose", "a", "--guide"],
        ["report", "a"],
        ["compare", "a", "b"],
        ["explain", "LOS002"],
        ["rules"],
        ["config"],
        ["export", "a", "--to", "csv"],
        ["tail", "a"],
        ["calibrate", "a"],
        ["alerts", "--help"],
    ],
    ids=lambda words: " ".join(words),
)
def test_every_command_that_trains_nothing_needs_none(tmp_path: Path, words: list[str]) -> None:
    for name in ("a", "b"):
        with sonde.record(tmp_path / name) as writer:
            for step in range(1, 150):
                writer.log({"loss": 2 / step, "lr": 0.1}, step=step)
    done = run("from sonde.cli.main import main; sys.exit(main(sys.argv[1:]))", *words, cwd=tmp_path)
    assert done.returncode in (0, 1, 3), done.stderr
    assert "Traceback" not in done.stderr
    assert "torch" not in done.stderr


@pytest.mark.parametrize("name", ["watch", "Watch"])
def test_what_watches_says_what_to_install(tmp_path: Path, name: str) -> None:
    code = f"""
import sonde
from sonde.core.errors import MissingExtra
try:
    sonde.{name}
except MissingExtra as error:
    print(error, error.name)
try:
    from sonde import {name}
except ImportError:
    print("ImportError")
"""
    done = run(code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said, kind = done.stdout.splitlines()
    assert said.startswith(f"`sonde.{name}` needs PyTorch, which is not installed: pip install 'sonde[torch]'")
    assert said.endswith("torch")
    assert kind == "ImportError"
    assert issubclass(MissingExtra, SondeError)


def test_the_demo_says_what_to_install(tmp_path: Path) -> None:
    done = run("from sonde.cli.main import main; sys.exit(main(['demo']))", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("sonde: `sonde demo` trains a model and needs PyTorch")
    assert list(tmp_path.iterdir()) == []


def test_a_script_that_trains_with_something_else_runs_as_it_does(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("print('did it')")
    done = run("from sonde.cli.main import main; sys.exit(main(['run', 'script.py']))", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "did it\n"), done.stderr
