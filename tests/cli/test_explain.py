import subprocess
from collections.abc import Callable

import pytest

from sonde.reports.problem_guides import GUIDES, text
from sonde.rules.catalogue import all_rules
from sonde.rules.rule import HEADINGS, Rule

Call = Callable[..., subprocess.CompletedProcess[str]]


def test_all_rules_and_guides_are_listed(call: Call) -> None:
    rules, _, guides = call("explain").stdout.partition("\nGuides:\n")
    assert [line.split()[0] for line in rules.splitlines()] == [rule.code for rule in all_rules()]
    assert [line.split()[0] for line in guides.splitlines()] == list(GUIDES)


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)
def test_every_rule_has_its_page_by_code_and_by_name(call: Call, rule: type[Rule]) -> None:
    page = call("explain", rule.code).stdout
    by_name = call("explain", rule.name.upper()).stdout
    assert by_name == (f"{page}\n{text(rule.name)}" if rule.name in GUIDES else page)
    for heading in HEADINGS:
        assert f"{heading}:" in page


def test_a_rule_names_the_guide_that_it_opens(call: Call) -> None:
    assert call("explain", "GRD001").stdout.endswith("\nGuide: sonde explain explosion\n")
    assert "Guide:" not in call("explain", "SYS001").stdout


@pytest.mark.parametrize("name", GUIDES)
def test_a_guide_is_printed_as_it_is_where_nothing_sets_it(call: Call, name: str) -> None:
    assert call("explain", name).stdout.endswith(text(name))


def test_an_unknown_rule_is_refused(call: Call) -> None:
    outcome = call("explain", "XYZ999")
    assert outcome.returncode == 2
    assert "sonde explain" in outcome.stderr
