"""Writes rules.md beside it: the manual pages of all rules, from their docstrings.

Usage: python docs/reference/make_rules.py
"""

import inspect
import textwrap
from pathlib import Path

from sonde.reports.problem_guides import guide_of, title
from sonde.rules.catalogue import own_rules
from sonde.rules.rule import HEADINGS, causes_of

PAGE = Path(__file__).with_name("rules.md")


def text() -> str:
    """The whole page."""
    lines = [
        "# Rules",
        "",
        "Every rule that `sonde diagnose` applies; `sonde explain CODE` prints the same. This page is made by "
        "`docs/reference/make_rules.py`.",
        "",
        "| code | name | |",
        "|---|---|---|",
    ]
    pages = []
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
    return "\n".join([*lines, *pages]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(text())
