"""`sonde runs`: the runs in a folder."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sonde.cli import colours, console
from sonde.core.quantities import age

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from sonde.store.runs import Summary


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
        findings = Text(str(summary.findings), style="bold yellow") if summary.findings else Text("-", style="dim")
        lines.add_row(
            name,
            str(summary.steps),
            colours.value(summary.loss),
            colours.ending(summary.ending),
            findings,
            age(now - summary.updated),
        )
    return lines
