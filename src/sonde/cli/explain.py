"""`sonde explain`: the manual page of a rule, and the list of all."""

import inspect
from typing import Annotated

import typer

from sonde.cli import console


def explain(
    code: Annotated[
        str | None, typer.Argument(metavar="[CODE]", help="Code or name of a rule; all are listed without it.")
    ] = None,
) -> None:
    """Print the manual page of a rule: what it detects, why it matters, what to do, and when it is wrong.

    Example:
      sonde explain
      sonde explain LOS002
    """
    from sonde.rules.catalogue import RULES
    from sonde.rules.rule import causes_of

    if code is None:
        for rule in RULES:
            print(f"{rule.code}  {rule.name:<28}  {_first_line(rule)}")
        return
    wanted = code.strip()
    for rule in RULES:
        if wanted.upper() == rule.code or wanted.lower() == rule.name:
            print(f"{rule.code} {rule.name}\n\n{inspect.getdoc(rule)}\n")
            print(f"Likely causes: {', '.join(causes_of(rule))}")
            print(f"Needs: {', '.join(rule.needs) or 'what the first look at a training found'}")
            return
    raise console.CommandError(f"there is no rule {code!r}; list all with: sonde explain")


def _first_line(rule: type) -> str:
    return (inspect.getdoc(rule) or "").partition("\n")[0]
