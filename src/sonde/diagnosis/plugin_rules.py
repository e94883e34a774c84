"""Rules of other packages: which judged a run while it was recorded, and whether the same ones judge it here."""

from collections.abc import Iterable, Mapping
from typing import Any

from sonde.core import printable
from sonde.core.plugins import Owner
from sonde.core.records import Event
from sonde.rules.catalogue import catalogue
from sonde.rules.rule import Rule

KIND = "plugin-rules"
"""Of the event that says which they are."""

_MOST, _LONGEST = 100, 500  # lines and their letters: a run that was received may hold anything


def described(rules: Iterable[Rule]) -> dict[str, Any]:
    """For the event: of each of these rules that is of another package its name and package, and what is left out."""
    found = catalogue()
    named = {
        rule.code: {"name": rule.name, **owner._asdict()}
        for rule in rules
        if (owner := found.owners.get(rule.code)) is not None
    }
    return {"rules": named, "problems": [str(problem) for problem in found.problems]}


def rule_problems(events: Iterable[Event]) -> tuple[str, ...]:
    """Why rules of other packages do not judge a run as they did while it was recorded, or at all; a line each.

    Args:
        events: Those of the run that are of `KIND`, the oldest first; of each rule the newest counts.
    """
    here = catalogue()
    told: dict[str, Any] = {}
    for event in events:
        rules = event.data.get("rules")
        told |= rules if isinstance(rules, Mapping) else {}
    lines = []
    for code, then in sorted(told.items())[:_MOST]:
        if not isinstance(then, Mapping):
            continue
        owner = Owner(str(then.get("distribution", "")), str(then.get("version", "")))
        now, rule = here.owners.get(code), f"{code} {then.get('name', '')}"
        if now is None:
            lines.append(
                f"rule {rule} of {owner} judged the run while it was recorded and is missing here: "
                f"install {owner.distribution}=={owner.version} to judge it likewise"
            )
        elif now != owner:
            lines.append(f"rule {rule} is of {now} here, and was of {owner} while the run was recorded: it may differ")
    return (*(printable.one_line(line[:_LONGEST]) for line in lines), *map(str, here.problems))
