"""`sonde explain`: the manual page of a rule, the guide for a problem, and the list of both."""

import inspect
import sys
from typing import Annotated

import typer

from sonde.cli import console


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
    from sonde.reports.explaining import explain as look_up

    try:
        found = look_up(code)
    except ValueError as error:
        raise console.CommandError(str(error)) from error
    for page in found.pages:
        print(page)
    if found.guide:
        if found.pages:
            print()
        _guide(found.guide)


def _guide(text: str) -> None:
    """As it is in a file or a pipe; set in columns on a terminal."""
    from rich.markdown import Markdown

    if console.terminal(sys.stdout).is_terminal:
        console.result(Markdown(text))
    else:
        print(text, end="")


def _first_line(rule: type) -> str:
    return (inspect.getdoc(rule) or "").partition("\n")[0]
