"""Writes rules.md beside it: the manual pages of all rules, from their docstrings.

The messages below "For example" are those of examples.json, which `make_examples.py` makes.

Usage: python docs/reference/make_rules.py
"""

import inspect
import json
import textwrap
from pathlib import Path

from sonde.reports.problem_guides import guide_of, title
from sonde.rules.catalogue import own_rules
from sonde.rules.rule import HEADINGS, causes_of

PAGE = Path(__file__).with_name("rules.md")
EXAMPLES = Path(__file__).with_name("examples.json")


def text() -> str:
    """The whole page."""
    lines = [
        "# Rules",
        "",
        "Every rule that `sonde diagnose` applies; `sonde explain CODE` prints its page. Examples are messages of "
        "recorded trainings, or of the rule's unit tests if no training raised it. This page is made by "
        "`docs/reference/make_rules.py`.",
        "",
        "| code | name | |",
        "|---|---|---|",
    ]
    pages = []
    examples = json.loads(EXAMPLES.read_text(encoding="utf-8"))
    for rule in own_rules():
        first, _, rest = (inspect.getdoc(rule) or "").partition("\n")
        lines.append(f"| [{rule.code}](#{rule.code.lower()}-{rule.name}) | {rule.name} | {first} |")
        pages += ["", f"## {rule.code} {rule.name}", "", first, ""]
        for line in textwrap.dedent(rest).strip().split("\n"):
            heading = line.rstrip(":")
            pages.append(f"**{heading}.**" if heading in HEADINGS else line.strip())
        needs = ", ".join(f"`{tag}`" for tag in rule.needs) or "what the first look at a training found"
        guide = guide_of(rule.code)
        opens = f" Guide: [{title(guide)}](../how-to/problems/{guide}.md)." if guide else ""
        pages += ["", f"Likely causes: {', '.join(causes_of(rule))}. Needs: {needs}.{opens}"]
        settings = ", ".join(f"`{name}` = {one.default}" for name, one in inspect.signature(rule).parameters.items())
        pages += ["", f"Settings and their defaults: {settings}."] if settings else []
        pages += ["", "For example:", "", *(f"- {_sentence(one['message'])}" for one in examples.get(rule.code, ()))]
    return "\n".join([*lines, *pages]) + "\n"


def _sentence(message: str) -> str:
    """As the report has it."""
    return f"{message[:1].upper()}{message[1:]}."


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
