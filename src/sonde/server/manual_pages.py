"""The manual page of a rule, as Markdown."""

import inspect
import textwrap

from sonde.core.strict_json import Json
from sonde.reports.problem_guides import guide_of, text
from sonde.rules.catalogue import rule_of
from sonde.rules.rule import HEADINGS, Rule, causes_of
from sonde.server.details import precision, tier_name


def about(code: str) -> dict[str, Json] | None:
    """A rule: its tier, how often it was right, its page, and the guide that its findings open; None without such."""
    rule = rule_of(code)
    if rule is None:
        return None
    guide = guide_of(code)
    return {
        "schema": 1,
        "code": code,
        "name": rule.name,
        "tier": tier_name(code),
        "precision": precision(code),
        "page": page(rule),
        "guide": text(guide) if guide else "",
    }


def page(rule: type[Rule]) -> str:
    """The page of a rule, from its docstring."""
    first, _, rest = (inspect.getdoc(rule) or "").partition("\n")
    lines = [f"# {rule.code} {rule.name}", "", first, ""]
    for line in textwrap.dedent(rest).strip().split("\n"):
        heading = line.rstrip(":")
        lines.append(f"## {heading}\n" if heading in HEADINGS else line.removeprefix("    "))
    needs = ", ".join(f"`{tag}`" for tag in rule.needs) or "what the first look at a training found"
    lines += ["", f"Likely causes: {', '.join(causes_of(rule))}. Needs: {needs}."]
    settings = ", ".join(f"`{name}` = {one.default}" for name, one in inspect.signature(rule).parameters.items())
    return "\n".join([*lines, *(["", f"Settings and their defaults: {settings}."] if settings else []), ""])
