"""`sonde show`: one run at a glance."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sonde.cli import console

if TYPE_CHECKING:
    from sonde.reports.reaching import Reached
    from sonde.store.reader import Run

_MOST_PARTS = 200


def show(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of the run.", show_default=False)],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    target: Annotated[
        list[str] | None,
        typer.Option(metavar="TAG=VALUE", help="What it took to reach this value; may be given several times."),
    ] = None,
) -> None:
    """Show one run: its state, the curve of its loss, last values, model, configuration, machine and events.

    With --target: when a series first came to a value, from the side on which it began, and the training time, samples
    and floating-point operations up to there.

    Example:
      sonde show runs/demo
      sonde show runs/demo --json | jq .last.loss.value
      sonde show runs/demo --target loss=0.5 --target val/accuracy=0.9
    """
    import sonde
    from sonde.cli.page import page

    opened = sonde.load(run)
    targets = [_reached(opened, one) for one in target or ()]
    if json:
        console.result_json({**as_json(opened), **({"targets": [asdict(one) for one in targets]} if targets else {})})
    elif targets:
        console.result(*map(str, targets))
    else:
        console.result(page(opened, width=console.curve_width()))


def _reached(run: "Run", target: str) -> "Reached":
    from sonde.reports.reaching import reached

    tag, _, value = target.rpartition("=")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not tag or not math.isfinite(number):
        raise console.CommandError(f"--target must be a series and a number, such as loss=0.5, got {target!r}")
    return reached(run, tag, number)


def as_json(run: "Run") -> dict[str, Any]:
    """The run as `--json` prints it. Times are UTC seconds; `last` has the series of the whole model."""
    from sonde.cli.page import main_series

    state = run.state
    return {
        "schema": 1,
        "run": run.name,
        "path": str(run.path),
        "state": state.ending,
        "reason": state.reason,
        "steps": state.steps,
        "created": run.info.get("created"),
        "updated": state.updated,
        "dropped": dict(state.dropped),
        "config": run.info.get("config"),
        "environment": run.info.get("environment"),
        "model": _model(run),
        "num_tags": len(run.tags()),
        "last": {tag: point._asdict() for tag, point in main_series(run).items()},
        "branches": [asdict(branch) for branch in run.branches],
        "events": [asdict(event) for event in run.events()],
        "problems": run.problems,
    }


def _model(run: "Run") -> dict[str, Any] | None:
    """Of the model table its size and its parts; the whole is in `run.json`."""
    from sonde.reports.model_summary import parts

    table = run.model
    if table is None:
        return None
    return {
        "num_modules": len(table.modules),
        "num_parameters": len(table.parameters),
        "num_values": table.num_values,
        "num_trainable": table.num_trainable,
        "left_out": dict(table.left_out),
        "parts": [part._asdict() for part in parts(table)[:_MOST_PARTS]],
    }
