"""`sonde tail`: a run that another process records, as it goes on."""

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sonde.cli import console

if TYPE_CHECKING:
    from sonde.cli.following import Following
    from sonde.console.view import View

_INTERVAL_S, _LINES_INTERVAL_S = 1.0, 10.0


def tail(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of the run.", show_default=False)],
    interval: Annotated[
        float | None,
        typer.Option(
            metavar="S", min=0.1, help="Seconds between two looks.  [default: 1, for lines 10]", show_default=False
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Look once.")] = False,
    lines: Annotated[bool, typer.Option("--lines", help="A line a look, as where there is no terminal.")] = False,
) -> None:
    """Show a training that another process records, until it ends: progress, loss, layers, open findings.

    Reads the run's folder and nothing else: the training does not notice. Ctrl-C leaves.

    Example:
      sonde tail runs/demo
      sonde tail runs/demo --once --lines
    """
    import sonde
    from sonde.cli.following import Following
    from sonde.console.terminals import can_draw

    following = Following(sonde.load(run))
    if once:
        _print(following.look(), one_line=lines)
    elif lines or not can_draw(sys.stdout, os.environ):
        _follow_in_lines(following, _LINES_INTERVAL_S if interval is None else interval)
    else:
        _follow_live(following, _INTERVAL_S if interval is None else interval)
    console.remark(f"{run}: {following.standing(time.time())}")


def _print(view: "View", *, one_line: bool) -> None:
    from sonde.console.drawing import line, rows
    from sonde.console.glyphs import glyphs_for

    if one_line:
        sys.stdout.write(f"{line(view)}\n")
    else:
        console.result(*rows(view, width=console.curve_width(), glyphs=glyphs_for(sys.stdout.encoding)))
    sys.stdout.flush()


def _follow_in_lines(following: "Following", interval_s: float) -> None:
    shown = -1
    for view in following.views(interval_s):
        if view.step != shown:
            shown = view.step
            _print(view, one_line=True)


def _follow_live(following: "Following", interval_s: float) -> None:
    from rich.console import Group
    from rich.live import Live

    from sonde.console.drawing import rows
    from sonde.console.glyphs import glyphs_for

    screen, glyphs = console.terminal(sys.stdout), glyphs_for(sys.stdout.encoding)
    with Live(console=screen, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
        for view in following.views(interval_s):
            live.update(Group(*rows(view, width=screen.width, glyphs=glyphs)), refresh=True)
