"""`sonde export`: a run as one file for other programs."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from sonde.cli import console


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of the run.", show_default=False)],
    to: Annotated[Literal["parquet", "csv", "jsonl"], typer.Option(help="Format of the file.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File to write; one that exists is replaced.  [default: RUN's name here]"),
    ] = None,
    tags: Annotated[str, typer.Option(metavar="PATTERN", help="Series to export, as a shell-style pattern.")] = "*",
) -> None:
    """Write a run into one file, a row a step and a column a series, and print the file's path.

    Example:
      sonde export runs/demo --to csv
      sonde export runs/demo --to parquet --out norms.parquet --tags 'grad/*'
    """
    import sonde
    from sonde.store.export import export as write

    opened = sonde.load(run)
    if not opened.tags(tags):
        raise console.CommandError(
            f"no series of {run} matches '{tags}'; it has {len(opened.tags())}: sonde show {run}"
        )
    file = out or Path(f"{opened.path.resolve().name}.{to}")
    if file.is_dir():
        raise console.CommandError(f"{file} is a folder; name a file with --out")
    if not file.parent.is_dir():
        raise console.CommandError(f"the folder of {file} does not exist; make it, or name another file with --out")
    console.say(console.one_line(write(opened, file, to=to, tags=tags)))
