"""`sonde report`: a run as one file to read, print or send."""

from pathlib import Path
from typing import Annotated

import typer

from sonde.cli import console


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of the run.", show_default=False)],
    html: Annotated[bool, typer.Option("--html", help="One page with pictures; this is the default.")] = False,
    md: Annotated[bool, typer.Option("--md", help="Markdown, with curves of block characters.")] = False,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="File to write, `-` for stdout.  [default: RUN's name here]"),
    ] = None,
    target: Annotated[
        float | None, typer.Option(metavar="LOSS", help="A loss to be reached; the forecast says when.")
    ] = None,
    defaults: Annotated[
        bool, typer.Option("--defaults", help="Judge by the rules' defaults: no settings of the run, none from here.")
    ] = False,
) -> None:
    """Tell a run in one self-contained file, the verdict first, and print the file's path.

    With `-o` the ending of the file says which form it has, unless `--html` or `--md` does. A file that exists is
    replaced. Works on finished and running trainings alike.

    Example:
      sonde report runs/demo
      sonde report runs/demo --md -o - | less
    """
    if html and md:
        raise console.CommandError("--html and --md exclude each other; leave one out")
    form = "md" if md or (not html and out is not None and out.suffix.lower() == ".md") else "html"
    if out is not None and str(out) != "-":
        if out.is_dir():
            raise console.CommandError(f"{out} is a folder; name a file with -o")
        if not out.parent.is_dir():
            raise console.CommandError(f"the folder of {out} does not exist; make it, or name another file with -o")
    import math

    from sonde.reports.diagnosing import by_default
    from sonde.reports.report import report as tell

    if target is not None and not math.isfinite(target):
        raise console.CommandError(f"--target must be a finite number, got {target}")
    told = tell(run, target=target, rules=by_default() if defaults else None)
    text = told.markdown() if form == "md" else told.html()
    if out is not None and str(out) == "-":
        console.say(text.removesuffix("\n"))
        return
    file = out or Path(f"{run.resolve().name}.{form}")
    file.write_text(
        text, encoding="utf-8", errors="replace"
    )  # it names the run, whose folder may be named in no encoding
    console.remark(told.verdict)
    console.say(console.one_line(file))
