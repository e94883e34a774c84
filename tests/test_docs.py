"""What the documents say is true: their code runs, their links lead somewhere, and nothing public is missing."""

import doctest
import importlib
import inspect
import json
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sonde
from sonde.cli.main import main
from sonde.rules.catalogue import own_rules
from sonde.rules.rule import Rule

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES_WITH_CODE = [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
MODULES = [info.name for info in pkgutil.walk_packages(sonde.__path__, "sonde.") if not info.name.endswith("__main__")]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES_WITH_CODE, ids=name_of)
def test_the_code_of_every_page_runs(page: Path, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    plain = {name: value for name, value in os.environ.items() if name != "SONDE_DOCTOR"}
    for block in blocks:  # one after another in one folder: later blocks read what earlier ones recorded
        done = subprocess.run(
            [sys.executable, "-c", block], cwd=tmp_path, env=plain, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{block}\n{done.stderr}"


def test_the_loop_that_the_readme_leads_with_gets_the_finding_that_it_shows(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    loop, *_ = re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)
    (said,) = re.findall(r"```text\n(.*?)```", readme, flags=re.DOTALL)
    (tmp_path / "train.py").write_text(loop, encoding="utf-8")
    plain = {name: value for name, value in os.environ.items() if not name.startswith("SONDE_")}
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, env=plain, capture_output=True, text=True, check=True
    )
    assert said in done.stderr


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_every_example_runs(example: Path, tmp_path: Path) -> None:
    several = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    start = several if "torchrun" in example.read_text(encoding="utf-8") else []
    command = [sys.executable, *start, str(example)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_notebook_runs_and_finds_its_mistake(tmp_path: Path) -> None:
    cells = json.loads((ROOT / "examples" / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nprint(diagnosis.findings[0].causes[0].cause)"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.split()[-1:] == ["lr-too-high"], done.stderr


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http:", "https:", "mailto:")):
            assert (page.parent / target).exists(), f"{page}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_make_target_that_a_page_names_exists(page: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    for named in re.findall(r"^\$ make ([a-z-]+)|`make ([a-z-]+)`", page.read_text(), flags=re.MULTILINE):
        assert (named[0] or named[1]) in targets


def test_every_public_name_and_method_is_in_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    for name in sonde.__all__:
        assert name.startswith("__") or f"sonde.{name}" in page or f"`{name}" in page, name
    for thing in (sonde.Run, sonde.Watch, sonde.Writer):
        members = [name for name, _ in inspect.getmembers(thing) if not name.startswith("_")]
        # `end` and `forget` are how the process's ending reaches the writer.
        missing = [
            name for name in members if name not in {"end", "forget"} and not re.search(rf"`[^`]*\b{name}\b", page)
        ]
        assert not missing, f"{thing.__name__}: {missing}"


def test_every_command_is_in_the_reference(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    assert main(["--help"]) == 0
    listed = re.findall(r"^  ([a-z]+)  ", capsys.readouterr().out.partition("Commands:")[2], flags=re.MULTILINE)
    assert {"demo", "export", "runs", "show"} <= set(listed)
    assert [name for name in listed if f"## sonde {name}" not in page] == []


@pytest.mark.parametrize("module", MODULES)
def test_every_module_and_class_says_what_it_is(module: str) -> None:
    loaded = importlib.import_module(module)
    assert loaded.__doc__, module
    for name, member in vars(loaded).items():
        if inspect.isclass(member) and member.__module__ == module and not name.startswith("_"):
            assert member.__doc__, f"{module}.{name}"


def test_everything_public_says_what_the_caller_gets() -> None:
    for thing in map(sonde.__dict__.get, sonde.__all__):
        for name, member in inspect.getmembers(thing) if inspect.isclass(thing) else [("", thing)]:
            if callable(member) and not name.startswith("_"):
                assert inspect.getdoc(member), f"{thing}.{name}"


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_in_docstrings_are_right(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


def test_every_documented_page_is_reached_from_the_readme() -> None:
    reached, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        reached.add(page)
        for target in re.findall(r"\]\(([^)#\s]+\.md)", page.read_text(encoding="utf-8")):
            path = (page.parent / target).resolve()
            if path not in reached and path.suffix == ".md":
                todo.append(path)
    assert set(PAGES) <= {path.resolve() for path in reached}


def _script(path: str) -> dict[str, Any]:
    """What a script of the docs defines."""
    namespace: dict[str, Any] = {"__name__": Path(path).stem, "__file__": str(ROOT / path)}
    exec((ROOT / path).read_text(encoding="utf-8"), namespace)
    return namespace


def test_the_page_of_rules_is_what_their_docstrings_say() -> None:
    page = (ROOT / "docs/reference/rules.md").read_text(encoding="utf-8")
    assert page == _script("docs/reference/make_rules.py")["text"](), "run: python docs/reference/make_rules.py"


@pytest.mark.parametrize("rule", own_rules(), ids=lambda rule: rule.code)
def test_an_example_is_what_its_rule_says(rule: type[Rule]) -> None:
    examples = json.loads((ROOT / "docs/reference/examples.json").read_text(encoding="utf-8"))
    assert examples[rule.code]
    script = _script("docs/reference/make_examples.py")
    for one in examples[rule.code]:
        # In a training its numbers and names are others.
        shown = script["shape"] if "training" in one else str
        said = {shown(message) for code, _, message in script["said_in"](one["test"]) if code == rule.code}
        assert shown(one["message"]) in said, "run: python docs/reference/make_examples.py"


def test_the_pages_of_problems_are_what_is_printed() -> None:
    folder, namespace = ROOT / "docs/how-to/problems", _script("docs/how-to/problems/make_guides.py")
    pages = {page.stem: page.read_text(encoding="utf-8") for page in folder.glob("*.md")}
    expected = {name: namespace["page"](name) for name in namespace["GUIDES"]}
    assert pages == expected, "run: python docs/how-to/problems/make_guides.py"


def test_every_page_has_a_place_in_the_navigation_of_the_site() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if f"- {page}\n" not in navigation] == []
