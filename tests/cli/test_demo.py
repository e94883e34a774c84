"""`sonde demo` from end to end, in processes of its own."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import sonde
from sonde.core.records import Ending

Call = Callable[..., subprocess.CompletedProcess[str]]


def test_a_short_demo_is_recorded_and_says_what_to_type_next(spawn: Call, tmp_path: Path) -> None:
    folder = tmp_path / "a run"
    outcome = spawn("demo", "--run", folder, "--steps", "3")
    assert outcome.returncode == 0
    assert "step 3/3" in outcome.stderr
    assert f"sonde show '{folder}'" in outcome.stdout
    assert f"sonde runs {tmp_path}" in outcome.stdout
    assert "\x1b" not in outcome.stdout + outcome.stderr
    run = sonde.load(folder)
    assert (run.state.ending, run.steps) == (Ending.FINISHED, 3)
    assert {"grad/norm", "loss", "lr", "val/loss", "grad/norm@head.weight"} <= set(run.tags())
    assert run.info["config"]["steps"] == 3


def test_the_run_goes_to_the_folder_runs_by_default(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sonde", "demo", "--steps", "1"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    (run,) = (tmp_path / "runs").glob("demo-*")
    assert sonde.load(run).steps == 1


def test_ctrl_c_closes_the_run_and_says_how_to_look_at_it(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    # A shell starts its background jobs with SIGINT ignored, and so would be everything below it.
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from sonde.cli.main import main; sys.exit(main())"
    )
    command = [sys.executable, "-c", code, "demo", "--run", str(folder), "--steps", "1000000"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("step ")  # the training is under way
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        process.wait()
    assert process.returncode == 130
    last = rest.splitlines()[-1]
    assert last.startswith("sonde: interrupted at step ")
    assert f"sonde show {folder}" in last
    assert "Traceback" not in rest
    assert sonde.load(folder).state.ending is Ending.INTERRUPTED


def test_a_folder_that_refuses_is_one_line_and_status_2(spawn: Call) -> None:
    outcome = spawn("demo", "--run", "/proc/run", "--steps", "1")
    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert outcome.stderr.count("\n") == 1
    assert "/proc/run cannot be written" in outcome.stderr


def test_without_torch_the_message_says_how_to_install_it(tmp_path: Path) -> None:
    # An interpreter that sees Sonde and what the command line needs, but no torch.
    program = "import sys; sys.modules['torch'] = None; from sonde.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "demo", "--run", str(tmp_path / "run")]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert outcome.returncode == 2
    assert outcome.stderr.count("\n") == 1
    assert "pip install 'sonde[torch]'" in outcome.stderr
    assert not (tmp_path / "run").exists()
