"""`sonde rules`: every rule with its tier, and how often its alarms are right."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sonde.cli import console

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table


def rules(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[RULE]...", help="Codes or names of rules; all without.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print the settings of each rule as well.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List the rules: code, name, tier, and how many of their alarms were right.

    A stable rule alarms; a preview rule only informs, since too many of its alarms were false, or by the wish of its
    author. `CODE.tier = "stable"` in the configuration changes that. Alarms are counted in the project's own small
    trainings, with faults and without (`benchmarks/RESULTS.md`). Tiers and settings are those that hold in this folder.

    Example:
      sonde rules
      sonde rules LOS002 gain-drift --verbose
      sonde rules --json | jq '.rules[] | select(.tier == "preview") | .code'
    """
    from sonde.rules.catalogue import catalogue

    chosen = _described(names)
    problems = [str(problem) for problem in catalogue().problems]
    if json:
        console.result_json({"schema": 1, "rules": chosen, "not_available": problems})
        return
    console.result(_table(chosen, verbose=verbose))
    for problem in problems:
        console.say(f"not available: {problem}")


def _described(names: "Sequence[str] | None") -> list[dict[str, Any]]:
    """Each rule as JSON has it."""
    from sonde.config import effective
    from sonde.rules.alarm_precision import PRECISION
    from sonde.rules.catalogue import all_rules, catalogue
    from sonde.rules.configuring import settings_of
    from sonde.rules.tiers import tier_of

    wanted = [_found(name) for name in names or ()]
    held, owners = effective().config.rules, catalogue().owners
    told = []
    for rule in wanted or all_rules():
        right, num = PRECISION.get(rule.code, (0, 0))
        mine = {key.partition(".")[2]: value for key, value in held.items() if key.startswith(f"{rule.code}.")}
        tier = mine.pop("tier", tier_of(rule))
        told.append(
            {
                "code": rule.code,
                "name": rule.name,
                "on": held.get(rule.code) is not False,
                "tier": str(tier),
                "right_alarms": right if num else None,
                "alarms": num or None,
                "package": str(owners[rule.code]) if rule.code in owners else None,
                "settings": {**settings_of(rule), **mine},
            }
        )
    return told


def _found(name: str) -> Any:
    from sonde.rules.configuring import kind_of

    try:
        return kind_of(name.strip())
    except ValueError as error:
        raise console.CommandError(str(error)) from error


def _table(chosen: "Sequence[dict[str, Any]]", *, verbose: bool) -> "Table":
    from rich.table import Table
    from rich.text import Text

    lines = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for heading in ("code", "name", "tier"):
        lines.add_column(heading, no_wrap=True)
    lines.add_column("alarms that were right", overflow="fold")
    for rule in chosen:
        tier = rule["tier"] if rule["on"] else "off"
        known = f"{rule['right_alarms']} of {rule['alarms']}" if rule["alarms"] else "not measured"
        package = f"   ({rule['package']})" if rule["package"] else ""
        lines.add_row(rule["code"], rule["name"], tier, Text.assemble(known, (package, "dim")))
        for setting, value in rule["settings"].items() if verbose else ():
            lines.add_row("", f"  {setting} = {_shown(value)}", "", "")
    return lines


def _shown(value: Any) -> str:
    from sonde.core import strict_json

    return strict_json.dumps(value)
