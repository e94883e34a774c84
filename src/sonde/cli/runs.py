"""`sonde runs`: the runs in a folder."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sonde.cli import colours, console
from sonde.core.quantities import age

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.table import Table
    from rich.text import Text

    from sonde.store.runs import Summary


_STYLES = {"critical": "bold red", "warning": "yellow", "info": ""}
_WORDS: "dict[str, Callable[[int], str]]" = {
    "critical": lambda _: "critical",
    "warning": lambda number: "warning" if number == 1 else "warnings",
    "info": lambda number: "note" if number == 1 else "notes",
}


def runs(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder that holds runs.")] = Path("runs"),
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List the runs in a folder: steps, last loss, state, findings, age.

    Example:
      sonde runs
      sonde runs /data/runs --json | jq '.runs[] | select(.state == "died") | .path'
    """
    from sonde.store.runs import list_runs

    summaries = list_runs(folder)
    if json:
        console.result_json({"schema": 1, "folder": str(folder), "runs": [as_json(summary) for summary in summaries]})
    elif summaries:
        console.result(table(summaries, now=time.time()))
    else:
        console.remark(f"no runs in {folder}; `sonde demo` records one")


def as_json(summary: "Summary") -> dict[str, Any]:
    """A run as `--json` prints it. Times are UTC seconds; null is a loss never recorded, or no problem."""
    return {
        "name": summary.name,
        "path": str(summary.path),
        "state": summary.ending,
        "reason": summary.reason,
        "steps": summary.steps,
        "loss": summary.loss,
        "findings": summary.findings,
        "severities": dict(summary.severities),
        "created": summary.created,
        "updated": summary.updated,
        "problem": summary.problem or None,
    }


def table(summaries: "Sequence[Summary]", *, now: float) -> "Table":
    """A line a run.

    Args:
        summaries: What to list, in order.
        now: UTC seconds, for the age.
    """
    from rich.table import Table
    from rich.text import Text

    lines = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    lines.add_column("run", overflow="fold")
    for heading in ("steps", "loss"):
        lines.add_column(heading, justify="right", no_wrap=True)
    lines.add_column("state", overflow="fold")
    for heading in ("findings", "updated"):
        lines.add_column(heading, justify="right", no_wrap=True)
    for summary in summaries:
        name = Text(console.one_line(summary.name))
        if summary.problem:
            lines.add_row(name, "", "", Text(f"unreadable: {console.one_line(summary.problem)}", style="red"))
            continue
        lines.add_row(
            name,
            str(summary.steps),
            colours.value(summary.loss),
            colours.ending(summary.ending),
            _findings(summary),
            age(now - summary.updated),
        )
    return lines


def _findings(summary: "Summary") -> "Text":
    """How many there are of each severity, in the colour of the worst."""
    from rich.text import Text

    told = {severity: summary.severities.get(severity, 0) for severity in _STYLES}
    said = ", ".join(f"{number} {_WORDS[severity](number)}" for severity, number in told.items() if number)
    if not said:
        said = str(summary.findings) if summary.findings else "-"
    worst = next((style for severity, style in _STYLES.items() if told[severity]), "" if summary.findings else "dim")
    return Text(said, style=worst)
