"""`sonde run`: any training script, watched, with no line changed."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from sonde.cli.commands import passes_on
from sonde.cli.launching import ENVIRONMENT, Console, launch


@passes_on
def run(
    script: Annotated[
        str, typer.Argument(metavar="SCRIPT", help="The script; with -m the name of a module.", show_default=False)
    ],
    args: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGS]...", help="Its own arguments.", show_default=False)
    ] = None,
    module: Annotated[bool, typer.Option("-m", help="Run a module, as `python -m` does.")] = False,
    run: Annotated[
        Path | None,
        typer.Option(
            "--run",
            "--run-dir",  # torchrun takes `--run` for its own
            metavar="DIR",
            envvar=ENVIRONMENT,
            help="Folder of the run.  [default: runs/<script>-<UTC time>]",
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Share of the time that watching may take.  [default: 0.01]"),
    ] = None,
    shown: Annotated[
        Console | None, typer.Option("--console", help="What Sonde prints, to stderr.  [default: auto]")
    ] = None,
) -> Callable[[], int]:
    """Run a training script as `python` would and watch what it trains; the script needs no change.

    Its output, exit status and traceback are its own; Sonde's lines go to stderr. Options of Sonde come before the
    script. What no option says is as the configuration has it: see `sonde config`. With the environment's SONDE=off the
    script runs alone.

    Example:
      sonde run train.py --lr 3e-4
      sonde run --run runs/first -m package.train --epochs 3
      torchrun --nproc-per-node 2 -m sonde run --run-dir runs/ddp train.py
    """
    return launch(script, args or (), is_module=module, run=run, budget=budget, shown=shown)
