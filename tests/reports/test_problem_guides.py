"""The guides for problems: what they name exists, and findings open them."""

import re
from pathlib import Path

import pytest

from sonde.cli.main import main
from sonde.core.causes import Cause
from sonde.reports.problem_guides import GUIDES, WITHOUT, guide_of, text
from sonde.rules.catalogue import all_rules
from sonde.rules.rule import Rule

ROOT = Path(__file__).parents[2]
HEADINGS = (
    "What you see",
    "The first three looks",
    "What you find, and what to do",
    "How to know that the fix worked",
    "When it is not a problem",
)


def _code(part: str) -> list[str]:
    return re.findall(r"`([^`]+)`", part)


def _rows(name: str) -> list[list[str]]:
    lines = [line for line in text(name).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize("name", GUIDES)
def test_a_guide_has_every_part_and_three_looks(name: str) -> None:
    assert tuple(re.findall(r"^## (.+)$", text(name), flags=re.MULTILINE)) == HEADINGS
    looks = text(name).partition(f"## {HEADINGS[1]}")[2].partition("\n## ")[0]
    assert re.findall(r"^(\d)\. \*\*", looks, flags=re.MULTILINE) == ["1", "2", "3"]
    assert all(len(row) == 3 and all(row) for row in _rows(name))


@pytest.mark.parametrize("name", GUIDES)
def test_every_cause_that_a_guide_names_is_in_the_vocabulary(name: str) -> None:
    causes = [word for _, cause, _ in _rows(name) for word in _code(cause)]
    assert len(causes) >= len(_rows(name))
    for cause in causes:
        assert Cause(cause)


@pytest.mark.parametrize("name", GUIDES)
def test_every_rule_that_a_guide_names_exists_and_opens_it(name: str) -> None:
    seen = text(name).partition(f"## {HEADINGS[0]}")[2].partition("\n## ")[0]
    codes = {rule.name: rule.code for rule in all_rules()}
    named = [word for word in _code(seen) if re.fullmatch(r"[a-z]+(-[a-z]+)*", word) and word != "non-finite"]
    assert len(named) >= 3
    assert [word for word in named if guide_of(codes[word]) != name] == []


@pytest.mark.parametrize("name", GUIDES)
def test_every_series_that_a_guide_names_is_one_that_is_recorded(name: str) -> None:
    page = (ROOT / "docs/how-to/read-the-series.md").read_text(encoding="utf-8")
    recorded = {tag.partition("@")[0] for tag in _code(page)}
    series = [word for word in _code(text(name)) if re.fullmatch(r"[a-z_]+/[a-z_0-9]+(@…)?", word)]
    assert len(set(series)) >= 5
    for tag in series:
        assert tag.partition("@")[0] in recorded, tag
        if tag.endswith("@…"):
            assert f"`{tag.removesuffix('…')}" in page, tag


@pytest.mark.parametrize("name", GUIDES)
def test_every_command_that_a_guide_names_is_one(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    commands = sorted({word for word in _code(text(name)) if word.startswith("sonde ")})
    assert any(command.startswith("sonde diagnose") for command in commands)
    for command in commands:
        _, verb, *words = command.split()
        assert main([verb, "--help"]) == 0, command
        described = capsys.readouterr().out
        assert all(word in described for word in words if word.startswith("--")), command
        if verb == "explain":
            assert words[0] in GUIDES


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)
def test_the_findings_of_every_rule_open_a_guide_or_are_none_of_learning(rule: type[Rule]) -> None:
    assert (guide_of(rule.code) in GUIDES) is (rule.code[:3] not in WITHOUT)


def test_a_rule_that_nobody_knows_opens_nothing() -> None:
    assert guide_of("XYZ001") == ""
