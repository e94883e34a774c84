import subprocess
from collections.abc import Callable

import pytest

from sonde.rules.catalogue import RULES
from sonde.rules.rule import HEADINGS, Rule

Call = Callable[..., subprocess.CompletedProcess[str]]


def test_all_rules_are_listed(call: Call) -> None:
    lines = call("explain").stdout.splitlines()
    assert [line.split()[0] for line in lines] == [rule.code for rule in RULES]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_every_rule_has_its_page_by_code_and_by_name(call: Call, rule: type[Rule]) -> None:
    page = call("explain", rule.code).stdout
    assert call("explain", rule.name.upper()).stdout == page
    for heading in HEADINGS:
        assert f"{heading}:" in page


def test_an_unknown_rule_is_refused(call: Call) -> None:
    outcome = call("explain", "XYZ999")
    assert outcome.returncode == 2
    assert "sonde explain" in outcome.stderr
