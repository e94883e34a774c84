"""Writes examples.json beside it: for each rule one or two messages that it really gave.

Usage: python docs/reference/make_examples.py [FOLDER ...]

A folder holds trainings as `python -m benchmarks.faults.run` records them; they are judged again. Without one, the
examples of trainings that are in the file are kept as long as the rule still says such a thing. Every example names a
unit test of the rule in which the rule says the same but for numbers and names, so that a test can tell whether it
still does (`said_in`, `shape`). A rule that no training raised has its example from that unit test itself.
"""

import collections
import importlib
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sonde.core.findings import Severity
from sonde.rules.catalogue import own_rules
from sonde.rules.rule import Sighting, causes_of

ROOT = Path(__file__).parents[2]
EXAMPLES = Path(__file__).with_name("examples.json")

_MOST = 2
_NAMES = re.compile(r"`[^`]*`(?: \(\w+\))?")
_PLACES = re.compile(r" \((?:\w+\.py|cuda):\d+\)")
_NUMBERS = re.compile(r"[-+]?(?:\d[\d,]*(?:\.\d+)?(?:e-?\d+)?|\binfinity\b|\bNaN\b)%?")
_UNITS = re.compile(r"# (?:bytes|[KMGT]iB)\b")
_PLURALS = re.compile(r"(# (?:[\w-]+ ){0,3}?\w+?)s\b")

Said = tuple[str, Severity, str]
"""A rule's code, the severity and the message."""


def shape(message: str) -> str:
    """A message without its numbers, names and places in the code.

    Example:
        >>> shape("module `5` (Linear) produced 160 bad values"), shape("module `a` produced 1 bad value")
        ('module `…` produced # bad value', 'module `…` produced # bad value')
    """
    masked = _NUMBERS.sub("#", _NAMES.sub("`…`", _PLACES.sub("", message)))
    return _PLURALS.sub(r"\1", _UNITS.sub("#", masked))


def said_in(test: str) -> list[Said]:
    """What all rules say in a unit test, by its name as pytest has it; a parametrised one is run with each value."""
    file, _, name = test.partition("::")
    function = getattr(importlib.import_module(file.removesuffix(".py").replace("/", ".")), name)
    said: list[Said] = []
    undo = []
    for rule in own_rules():
        for method in ("step", "judge"):
            if method in rule.__dict__:
                original = rule.__dict__[method]
                undo.append((rule, method, original))
                setattr(rule, method, _recording(rule.code, original, said))
    try:
        for arguments in _arguments(function):
            function(**arguments)
    finally:
        for rule, method, original in undo:
            setattr(rule, method, original)
    return said


def examples(folders: list[Path]) -> dict[str, list[dict[str, str]]]:
    """By code; what a training said comes first, and the gravest of that."""
    trained = _said_in_trainings(folders) if folders else _kept()
    found: dict[str, list[dict[str, str]]] = {}
    for rule in own_rules():
        by_shape: dict[str, tuple[str, Severity, str]] = {}
        for test in _tests(rule):
            for code, severity, message in said_in(test):
                if code == rule.code:
                    by_shape.setdefault(shape(message), (test, severity, message))
        causes = causes_of(rule)
        candidates = []
        for name, cause, severity, message in trained[rule.code]:
            if (known := by_shape.get(shape(message))) is not None:
                one = {"message": message, "training": name, "test": known[0]}
                candidates.append((False, -_GRAVITY.index(severity), cause not in causes, one))
        for test, severity, message in by_shape.values():
            candidates.append((True, -_GRAVITY.index(severity), False, {"message": message, "test": test}))
        chosen: dict[str, dict[str, str]] = {}
        for *_, one in sorted(candidates, key=lambda candidate: candidate[:3]):
            chosen.setdefault(shape(one["message"]), one)
        found[rule.code] = list(chosen.values())[:_MOST]
    return found


_GRAVITY = (Severity.INFO, Severity.WARNING, Severity.CRITICAL)


def _recording(code: str, original: Callable[..., Any], said: list[Said]) -> Callable[..., Any]:
    def recorded(*arguments: Any, **named: Any) -> Any:
        given = original(*arguments, **named)
        said.extend((code, one.severity, one.message) for one in _sightings(given))
        return given

    return recorded


def _sightings(given: Any) -> Iterator[Sighting]:
    """In what a rule's method gave: with its state, or with steps."""
    if isinstance(given, Sighting):
        yield given
    elif isinstance(given, list | tuple):
        for part in given:
            yield from _sightings(part)


def _tests(rule: type) -> Iterator[str]:
    """The unit tests of a rule that can be called as they are, in the order of their file."""
    folder = ROOT / "tests" / Path(*rule.__module__.split(".")[1:-1])
    for file in sorted(
        folder.glob("test_*.py"), key=lambda file: file.stem != f"test_{rule.__module__.split('.')[-1]}"
    ):
        if re.search(rf"\b{rule.__name__}\b", file.read_text(encoding="utf-8")):
            name = file.relative_to(ROOT).as_posix()
            module = importlib.import_module(name.removesuffix(".py").replace("/", "."))
            for key, member in vars(module).items():
                if key.startswith("test_") and _arguments(member) is not None:
                    yield f"{name}::{key}"


def _arguments(function: Callable[..., Any]) -> list[dict[str, Any]]:
    """What to call a test with: one call for each value of its only parameter, none where it needs a fixture."""
    marks = [mark for mark in getattr(function, "pytestmark", ()) if mark.name == "parametrize"]
    calls: list[dict[str, Any]] = [{}]
    for mark in marks:
        names = [name.strip() for name in mark.args[0].split(",")] if isinstance(mark.args[0], str) else mark.args[0]
        calls = [
            call | dict(zip(names, value if len(names) > 1 else (value,), strict=True))
            for call in calls
            for value in mark.args[1]
        ]
    return [call for call in calls if call.keys() == inspect.signature(function).parameters.keys()]


def _kept() -> dict[str, list[tuple[str, str, Severity, str]]]:
    """The examples of trainings that are in the file, in their order."""
    found: dict[str, list[tuple[str, str, Severity, str]]] = collections.defaultdict(list)
    if EXAMPLES.exists():
        for code, kept in json.loads(EXAMPLES.read_text(encoding="utf-8")).items():
            found[code] += [(one["training"], "", Severity.INFO, one["message"]) for one in kept if "training" in one]
    return found


def _said_in_trainings(folders: list[Path]) -> dict[str, list[tuple[str, str, Severity, str]]]:
    """By code: name of the training, its cause, severity and message."""
    from benchmarks.faults.run import catalogue

    import sonde

    found: dict[str, list[tuple[str, str, Severity, str]]] = collections.defaultdict(list)
    causes = {name: str(scenario.cause or "") for name, scenario in catalogue().items()}
    for run in sorted(run.parent for folder in folders for run in folder.glob("*/*-faulty/run.json")):
        for one in sonde.diagnose(sonde.load(run)):
            name = run.parent.name
            found[one.code].append((name, causes.get(name, ""), one.severity, one.message))
    return found


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    made = examples([Path(name) for name in sys.argv[1:]])
    EXAMPLES.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
