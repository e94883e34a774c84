"""`sonde import`: a run out of what another program logged."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from sonde.cli import console


def import_(
    kind: Annotated[
        Literal["tensorboard", "csv", "wandb", "mlflow"],
        typer.Argument(metavar="KIND", help="tensorboard, csv, wandb or mlflow.", show_default=False),
    ],
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="Folder or file of the log, or MLflow's URI.", show_default=False)
    ],
    run: Annotated[
        str | None, typer.Option("--run", metavar="NAME", help="Which of several runs in SOURCE, by name or ID.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the new run.  [default: runs/<name of the log>]"),
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="THEIRS=OURS", help="What a series of the log is called here; may be repeated."),
    ] = None,
) -> None:
    """Make a run out of TensorBoard, W&B, MLflow or CSV logs, for diagnose, compare and report.

    None of those programs needs to be installed. What each series became is printed.

    Example:
      sonde import tensorboard lightning_logs/version_3
      sonde import csv history.csv --out runs/old --map my_loss=loss
    """
    from sonde.store.importing.imports import import_logs

    tags = {}
    for pair in names or ():
        theirs, equals, ours = pair.rpartition("=")
        if not equals or not theirs or not ours:
            raise console.CommandError(f"--map {pair} must be THEIRS=OURS, for example --map my_loss=loss")
        if theirs in tags:
            raise console.CommandError(f"--map names {theirs} twice; give it one tag")
        tags[theirs] = ours
    imported = import_logs(kind, source, out, run=run, tags=tags)
    first, *rest = str(imported).split("\n")
    print(console.one_line(first), *(f"  {console.one_line(line)}" for line in rest), sep="\n")
    console.remark(f"look at it with: sonde diagnose {imported.path}")
