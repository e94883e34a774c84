"""`sonde calibrate`: settings of the rules that fit runs which are known to be good."""

from pathlib import Path
from typing import Annotated

import typer

from sonde.cli import console


def calibrate(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUNS...", help="Folders of known-good runs, or folders of such.", show_default=False),
    ],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="Where to write the profile.", show_default=False)
    ] = None,
    margin: Annotated[
        float, typer.Option(min=1.0, help="Factor beyond what the runs need; larger alarms later.")
    ] = 1.25,
) -> None:
    """Fit the rules' thresholds to runs that are known to be good, and say how many false alarms that saves.

    The profile is for `sonde diagnose --profile FILE`. Without -o it is only printed.

    Example:
      sonde calibrate runs/good-1 runs/good-2 -o small-models.toml
      sonde diagnose runs/new --profile small-models.toml
    """
    from sonde.reports.calibrating import calibrate as fit
    from sonde.store.runs import list_runs

    found = [summary.path for folder in runs for summary in list_runs(folder) if not summary.problem]
    if not found:
        raise console.CommandError(f"there is no readable run in {', '.join(map(str, runs))}; record some first")
    if out is not None and not out.parent.is_dir():
        raise console.CommandError(f"the folder of {out} does not exist; make it, or name another file with -o")
    calibration = fit(found, margin=margin)
    if out is None:
        console.say(calibration.to_toml().removesuffix("\n"))
        return
    out.write_text(calibration.to_toml(), encoding="utf-8", errors="replace")
    first, *rest = str(calibration).split("\n")
    print(console.one_line(first), *(f"  {console.one_line(line)}" for line in rest), sep="\n")
    console.say(console.one_line(f"written to {out}; use it with: sonde diagnose RUN --profile {out}"))
