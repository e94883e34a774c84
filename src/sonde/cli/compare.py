"""`sonde compare`: what differs between runs, and since when."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from sonde.cli import console


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="A B [C ...]", help="Folders of the runs; A is the reference.", show_default=False),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the curves into an SVG file.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write everything into an HTML file.")] = None,
    tag: Annotated[str | None, typer.Option(metavar="TAG", help="Series to compare.  [default: the loss]")] = None,
    by: Annotated[
        Literal["step", "samples", "tokens", "time"], typer.Option(help="What the curves are aligned by.")
    ] = "step",
    tolerance: Annotated[
        float, typer.Option(min=0, help="Relative difference beyond which values count as diverged.")
    ] = 1e-3,
) -> None:
    """Say what differs between runs: settings, model, curves, the first tensor that diverged, health.

    Works on finished and running trainings alike, and on imported ones that hold no more than a loss.

    Example:
      sonde compare runs/a runs/b
      sonde compare runs/a runs/b runs/c --tag val/loss --by time --html compared.html
      sonde compare runs/a runs/b --json | jq '.against[0].curves.separation'
    """
    if len(runs) < 2:
        raise console.CommandError(f"there is nothing to compare {runs[0]} with; name two runs or more")
    files = [file for file in (svg, html) if file is not None]
    for file in files:
        if file.is_dir():
            raise console.CommandError(f"{file} is a folder; name a file")
        if not file.parent.is_dir():
            raise console.CommandError(f"the folder of {file} does not exist; make it, or name another file")

    from sonde.reports.comparing import compare as hold_against
    from sonde.reports.html import html as page
    from sonde.reports.html import svg as drawn
    from sonde.reports.sections.comparison import charts, compared

    comparison = hold_against(runs[0], runs[1], *runs[2:], tag=tag, by=by, tolerance=tolerance)
    if svg is not None:
        svg.write_text(drawn(*charts(comparison)), encoding="utf-8", errors="replace")
    if html is not None:
        html.write_text(page(compared(comparison)), encoding="utf-8", errors="replace")
    if json:
        console.result_json(comparison.to_json())
    else:
        console.say(comparison)
    for file in files:
        console.remark(f"wrote {file}")
