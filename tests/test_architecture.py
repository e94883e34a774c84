"""The shape of the code, as docs/explanation/architecture.md draws it."""

import ast
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from sonde.rules.catalogue import own_rules

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "sonde"
FILES = sorted(SOURCE.rglob("*.py"))


def test_the_import_contracts_hold() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "3 kept, 0 broken" in done.stdout


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_no_file_does_what_is_forbidden(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert "register_full_backward_hook(" not in text, "it breaks training with in-place activations"
    assert not re.fullmatch(r"(utils|helpers|common|misc|manager|processor)\.py", file.name)
    assert "basicConfig(" not in text, "importing Sonde configures no logging"


def imports(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree))
    plain = {alias.name.split(".")[0] for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module.split(".")[0] for node in nodes if isinstance(node, ast.ImportFrom) and node.module}


def test_every_dependency_is_used_and_every_import_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {re.split(r"[\s<>=\[]", line)[0] for line in project["dependencies"]}
    used = set().union(*(imports(file) for file in FILES)) - set(sys.stdlib_module_names) - {"sonde"}
    optional = {
        re.split(r"[\s<>=\[]", line)[0] for lines in project["optional-dependencies"].values() for line in lines
    }
    # `sonde.testing` is for plug-in authors, who bring pytest; click comes with typer.
    assert used - {"pytest", "click"} <= declared | optional
    assert declared <= used


def test_every_constraint_is_exact_and_torch_is_pinned() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert "torch==2.13.0" in lines
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[^\s+]+", line) for line in lines)


def test_importing_sonde_imports_next_to_nothing() -> None:
    code = "import sys, sonde; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "numpy", "pyarrow", "typer", "rich", "logging"} & set(done.stdout.split())


def test_recording_and_reading_need_no_torch(tmp_path: Path) -> None:
    code = """
import sys
import sonde
with sonde.record(sys.argv[1]) as run:
    run.log({"loss": 1.0}, step=0)
run = sonde.load(sys.argv[1])
run.series("loss"), run.window("loss"), run.last(), run.table(), run.events()
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "run")], check=True)


def test_every_source_folder_has_tests() -> None:
    packages = {folder.name for folder in SOURCE.iterdir() if (folder / "__init__.py").exists()}
    tested = {folder.name for folder in (ROOT / "tests").iterdir() if any(folder.glob("test_*.py"))} | {"testing"}
    assert packages <= tested  # `testing` is exercised by tests/conformance


# What opens a file by its path.
OPENING = {"open", "read_text", "read_bytes", "write_text", "write_bytes", "memmap", "memory_map", "OSFile", "connect"}
# These read or write files of the user's own: where the training runs, a profile, the file that an export asks for.
OWN_FILES = {"environment.py", "profiles.py", "export.py"}
# A Parquet reader gets an open file; SQLite knows paths only: what it opens is checked before.
ALLOWED = {"opening.read_bytes", "_reader.open", "sqlite3.connect"}


def opening_calls(file: Path) -> set[str]:
    """The calls of a file that open something."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            words = ast.unparse(node.func).split(".")
            if words[-1] in OPENING:
                found.add(".".join(words[-2:]))
    return found


@pytest.mark.parametrize("file", sorted((SOURCE / "store").rglob("*.py")), ids=lambda file: file.name)
def test_files_of_runs_and_logs_are_opened_in_one_place(file: Path) -> None:
    if file.name not in {"opening.py", "folders.py"} | OWN_FILES:  # the door, and what it opens folders by
        assert opening_calls(file) <= ALLOWED


# The catalogue, and what is generated from all rules; elsewhere it is the class, or a property of it.
OF_ALL_RULES = [SOURCE / place for place in ("rules/catalogue.py", "rules/alarm_precision.py", "diagnosis/weights.py")]


def said_strings(file: Path) -> list[str]:
    """The texts of a file that are no docstrings."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [str(node.value) for node in strings if id(node) not in docs]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_a_rules_code_stands_in_its_own_file_and_in_the_catalogue_only(file: Path) -> None:
    if file in OF_ALL_RULES:
        return
    codes = {code for text in said_strings(file) for code in re.findall(r"\b[A-Z]{3}[0-9]{3}\b", text)}
    own = {rule.code for rule in own_rules() if Path(inspect.getfile(rule)) == file}
    assert codes & {rule.code for rule in own_rules()} <= own
