"""The manual page of a rule, and the guide for a problem, by their names."""

import difflib
import inspect
from dataclasses import dataclass

from sonde.reports.problem_guides import GUIDES, guide_of, text
from sonde.rules.catalogue import all_rules
from sonde.rules.rule import Rule, causes_of


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """What a rule looks for, or how a problem is debugged; printed, it is the page.

    Args:
        pages: Manual pages of rules, as plain text.
        guide: The guide of that name, as Markdown; "" where there is none.
    """

    pages: tuple[str, ...]
    guide: str = ""

    def __str__(self) -> str:
        return "\n\n".join((*self.pages, *([self.guide.rstrip("\n")] if self.guide else ())))

    __repr__ = __str__

    def _repr_markdown_(self) -> str:
        """For notebooks."""
        return "\n\n".join((*(f"```text\n{page}\n```" for page in self.pages), self.guide))


def explain(name: str) -> Explanation:
    r"""The manual page of a rule, or the guide for a problem; both where they have one name.

    A rule's page says what it detects, why it matters, what to do, and when it is wrong. A guide says where to look
    first, what tells one cause from another, and how to know that the fix worked.

    Args:
        name: Code or name of a rule (`"GRD001"`, `"exploding-gradients"`), or of a guide (`"loss-not-falling"`).

    Raises:
        ValueError: there is no such rule or guide.

    Example:
        >>> print(str(explain("grd001")).partition("\n")[0])
        GRD001 exploding-gradients
    """
    wanted = name.strip()
    rules = [rule for rule in all_rules() if wanted.upper() == rule.code or wanted.lower() == rule.name]
    guide = text(wanted.lower()) if wanted.lower() in GUIDES else ""
    if not rules and not guide:
        known = [*(rule.code for rule in all_rules()), *(rule.name for rule in all_rules()), *GUIDES]
        near = difflib.get_close_matches(wanted.lower(), known, n=3)
        hint = f"; the nearest are {', '.join(near)}" if near else ""
        raise ValueError(f"there is no rule or guide {name!r}{hint}; list all with: sonde explain")
    return Explanation(tuple(map(_page, rules)), guide)


def _page(rule: type[Rule]) -> str:
    lines = [f"{rule.code} {rule.name}\n\n{inspect.getdoc(rule)}\n"]
    lines.append(f"Likely causes: {', '.join(causes_of(rule))}")
    lines.append(f"Needs: {', '.join(rule.needs) or 'what the first look at a training found'}")
    if settings := ", ".join(f"{name} = {one.default}" for name, one in inspect.signature(rule).parameters.items()):
        lines.append(f"Settings: {settings}")
    if guide := guide_of(rule.code):
        lines.append(f"Guide: sonde explain {guide}")
    return "\n".join(lines)
