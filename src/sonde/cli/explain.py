"""`sonde explain`: the manual page of a rule, the guide for a problem, and the list of both."""

import inspect
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from sonde.cli import console

if TYPE_CHECKING:
    from sonde.rules.rule import Rule


def explain(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="[CODE]", help="Code or name of a rule, or a problem that has a guide; all are listed without it."
        ),
    ] = None,
) -> None:
    """Print the manual page of a rule, or the guide for a problem.

    A rule's page says what it detects, why it matters, what to do, and when it is wrong. A guide says where to look
    first, what tells one cause from another, and how to know that the fix worked. Where both have one name, both are
    printed.

    Example:
      sonde explain
      sonde explain LOS002
      sonde explain loss-not-falling
    """
    from sonde.reports.problem_guides import GUIDES, title
    from sonde.rules.catalogue import all_rules

    if code is None:
        for rule in all_rules():
            print(f"{rule.code}  {rule.name:<28}  {_first_line(rule)}")
        print("\nGuides:")
        for name in GUIDES:
            print(f"{name:<18}  {title(name)}")
        return
    wanted = code.strip()
    rules = [rule for rule in all_rules() if wanted.upper() == rule.code or wanted.lower() == rule.name]
    if not rules and wanted.lower() not in GUIDES:
        raise console.CommandError(f"there is no rule or guide {code!r}; list all with: sonde explain")
    for rule in rules:
        _page(rule)
    if wanted.lower() in GUIDES:
        if rules:
            print()
        _guide(wanted.lower())


def _page(rule: "type[Rule]") -> None:
    from sonde.reports.problem_guides import guide_of
    from sonde.rules.rule import causes_of

    print(f"{rule.code} {rule.name}\n\n{inspect.getdoc(rule)}\n")
    print(f"Likely causes: {', '.join(causes_of(rule))}")
    print(f"Needs: {', '.join(rule.needs) or 'what the first look at a training found'}")
    if settings := ", ".join(f"{name} = {one.default}" for name, one in inspect.signature(rule).parameters.items()):
        print(f"Settings: {settings}")
    if guide := guide_of(rule.code):
        print(f"Guide: sonde explain {guide}")


def _guide(name: str) -> None:
    """As it is in a file or a pipe; set in columns on a terminal."""
    from rich.markdown import Markdown

    from sonde.reports.problem_guides import text

    if console.terminal(sys.stdout).is_terminal:
        console.result(Markdown(text(name)))
    else:
        print(text(name), end="")


def _first_line(rule: type) -> str:
    return (inspect.getdoc(rule) or "").partition("\n")[0]
