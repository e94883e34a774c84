"""The program around the commands: help, errors, exit statuses, pipes and plug-ins."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import sonde
from sonde.cli.commands import COMMANDS

Call = Callable[..., subprocess.CompletedProcess[str]]
BUILTINS = sorted(COMMANDS.builtins)


def test_version_is_that_of_the_package(call: Call) -> None:
    outcome = call("--version")
    assert (outcome.returncode, outcome.stdout) == (0, f"sonde {sonde.__version__}\n")


def test_without_a_command_help_is_printed(call: Call) -> None:
    outcome = call()
    assert outcome.returncode == 0
    assert outcome.stdout == call("--help").stdout
    assert outcome.stderr == ""


def test_help_lists_every_command(call: Call) -> None:
    text = call("--help").stdout
    assert all(f"  {name} " in text for name in BUILTINS)
    assert "Not available" not in text


@pytest.mark.parametrize("name", BUILTINS)
def test_help_of_a_command_has_an_example_and_the_exit_statuses(call: Call, name: str) -> None:
    outcome = call(name, "--help")
    assert outcome.returncode == 0
    assert f"  Example:\n    sonde {name}" in outcome.stdout
    assert "Exit status:" in outcome.stdout


def test_python_m_sonde_is_the_installed_script(spawn: Call) -> None:
    script = Path(sys.executable).with_name("sonde")
    by_script = subprocess.run([script, "--help"], capture_output=True, text=True, check=True)
    assert by_script.stdout == spawn("--help").stdout


@pytest.mark.parametrize("words", [[], ["--help"], ["--version"], *([name, "--help"] for name in BUILTINS), ["rnus"]])
def test_help_and_usage_errors_load_neither_torch_nor_arrow_nor_numpy(words: list[str]) -> None:
    program = (
        "import sys\n"
        "from sonde.cli.main import main\n"
        f"main({words!r})\n"
        "heavy = {'torch', 'triton', 'pyarrow', 'numpy', 'pandas', 'rich'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_importing_sonde_loads_neither_torch_nor_arrow_nor_numpy() -> None:
    program = "import sonde, sys; sys.exit(bool({'torch', 'pyarrow', 'numpy', 'typer', 'rich'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["rnus"], "did you mean 'runs'?"),
        (["--jsno"], "--jsno"),
        (["runs", "--jsno"], "--json"),
        (["show"], "RUN"),
        (["show", "a", "b"], "b"),
        (["export", "a", "--to", "xml"], "'xml' is not one of 'parquet', 'csv', 'jsonl'"),
        (["export", "a"], "--to"),
        (["demo", "--steps", "0"], "--steps"),
        (["demo", "--steps", "many"], "--steps"),
        (["demo", "--seed", "-1"], "--seed"),
        (["show", "no/such/run"], "no/such/run does not exist"),
        (["runs", "no/such/folder"], "no/such/folder does not exist"),
        (["export", "no/such/run", "--to", "csv"], "no/such/run does not exist"),
    ],
)
def test_a_mistake_is_one_line_on_stderr_and_status_2(call: Call, words: list[str], expected: str) -> None:
    outcome = call(*words)
    assert outcome.returncode == 2
    assert outcome.stdout == ""
    assert outcome.stderr.startswith("sonde: ")
    assert outcome.stderr.count("\n") == 1
    assert expected in outcome.stderr


@pytest.mark.parametrize("run_json", ["", "not JSON", "[]", '{"schema": 999}', '{"schema": "1"}'])
@pytest.mark.parametrize("words", [["show"], ["show", "--json"], ["export", "--to", "csv"]])
def test_an_unreadable_run_is_one_line_and_status_2(
    call: Call, tmp_path: Path, run_json: str, words: list[str]
) -> None:
    (tmp_path / "run.json").write_text(run_json)
    outcome = call(*words, tmp_path)
    assert outcome.returncode == 2
    assert outcome.stdout == ""
    assert outcome.stderr.count("\n") == 1


def test_a_closed_pipe_ends_the_program_quietly(runs: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb") as closed_pipe:
        outcome = subprocess.run(
            [sys.executable, "-m", "sonde", "runs", str(runs)], stdout=closed_pipe, stderr=subprocess.PIPE, check=False
        )
    assert outcome.stderr == b""
    assert outcome.returncode == 141


def test_a_full_disk_behind_stdout_is_one_line_and_status_2(runs: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        outcome = subprocess.run(
            [sys.executable, "-m", "sonde", "runs", str(runs)], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert outcome.returncode == 2
    assert outcome.stderr.count(b"\n") == 1


def test_a_terminal_without_unicode_gets_question_marks(spawn: Call, runs: Path) -> None:
    outcome = spawn("show", runs / "healthy", env={"PYTHONIOENCODING": "ascii"})
    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert "?" in outcome.stdout


@pytest.mark.parametrize("words", [["runs"], ["show", "healthy"], ["--help"]])
def test_output_that_is_not_a_terminal_has_no_colour(spawn: Call, runs: Path, words: list[str]) -> None:
    words = [words[0], *(str(runs / word) for word in words[1:] or ([] if words == ["--help"] else [""]))]
    outcome = spawn(*words)
    assert outcome.returncode == 0
    assert "\x1b" not in outcome.stdout + outcome.stderr


def install(site: Path, commands: dict[str, str], code: str) -> dict[str, str]:
    """Put a third party's package into `site` as pip would, and return the environment in which Python finds it."""
    (site / "third_party.py").write_text(code)
    metadata = site / "third_party-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: third-party\nVersion: 1.0\n")
    entries = "\n".join(f"{name} = {target}" for name, target in commands.items())
    (metadata / "entry_points.txt").write_text(f"[sonde.commands]\n{entries}\n")
    return {"PYTHONPATH": str(site)}


CODE = '''
def greet(name: str, loud: bool = False) -> None:
    """Greet somebody."""
    print(name.upper() if loud else name)

def interrupt() -> None:
    """Stand for Ctrl-C at any moment."""
    raise KeyboardInterrupt

def found() -> int:
    """Find something."""
    return 1
'''


def test_a_third_party_adds_commands(spawn: Call, tmp_path: Path) -> None:
    env = install(tmp_path, {"greet": "third_party:greet", "found": "third_party:found"}, CODE)
    assert re.search(r"greet +Greet somebody\.", spawn("--help", env=env).stdout)
    assert spawn("greet", "ada", "--loud", env=env).stdout == "ADA\n"
    assert spawn("found", env=env).returncode == 1


def test_ctrl_c_is_one_line_and_status_130(spawn: Call, tmp_path: Path) -> None:
    outcome = spawn("interrupt", env=install(tmp_path, {"interrupt": "third_party:interrupt"}, CODE))
    assert (outcome.returncode, outcome.stderr) == (130, "sonde: interrupted\n")


def test_a_broken_third_party_keeps_no_other_command_from_working(spawn: Call, tmp_path: Path, runs: Path) -> None:
    env = install(tmp_path, {"greet": "third_party:greet"}, "raise RuntimeError('half installed')")
    assert spawn("runs", runs, env=env).returncode == 0
    text = spawn("--help", env=env).stdout
    assert "Not available:" in text
    assert "half installed" in text
    called = spawn("greet", env=env)
    assert called.returncode == 2
    assert called.stderr.count("\n") == 1
    assert "half installed" in called.stderr


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_a_terminal_gets_colour_unless_it_is_refused(runs: Path, no_color: str, coloured: bool) -> None:
    ours, theirs = os.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "NO_COLOR": no_color}
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        command = [sys.executable, "-m", "sonde", "runs", str(runs)]
        subprocess.run(command, stdout=theirs, stderr=theirs, env=env, check=True)
        output = terminal.read(100_000).decode()
        os.close(theirs)
    assert "finished" in output
    assert ("\x1b[32m" in output) is coloured


@pytest.mark.parametrize("name", BUILTINS)
def test_every_command_and_option_is_in_the_manual(call: Call, name: str) -> None:
    manual = (Path(__file__).parents[2] / "docs/reference/cli.md").read_text(encoding="utf-8")
    assert f"\n## sonde {name}" in manual
    section = manual.split(f"\n## sonde {name}")[1].split("\n## ")[0]
    options = set(re.findall(r"--\w+", call(name, "--help").stdout.split("Options:")[1])) - {"--help"}
    assert options or name == "explain"
    assert all(option in section for option in options)


def test_help_shows_whole_descriptions(call: Call) -> None:
    from inspect import getdoc

    from sonde.cli.commands import COMMANDS

    shown = call("--help").stdout
    assert "..." not in shown.partition("Commands:")[2].partition("Exit status")[0]
    plain = " ".join(shown.split())
    for name, command in COMMANDS.load_all().members.items():
        first = " ".join((getdoc(command) or "").partition("\n\n")[0].split())
        assert f"{name} {first}" in plain
