"""`sonde demo`: a small training, recorded."""

import os
import shlex
import sys
import textwrap
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from sonde.cli import console
from sonde.core.optional import available, require_torch
from sonde.core.quantities import duration, number
from sonde.demo.settings import Settings

# Torch takes every core by default, and these matrices are too small to share out among dozens. A guess: two cores are
# all that was measured.
_MAX_THREADS = 4


def demo(
    run: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the run.  [default: runs/demo-<UTC time>]")
    ] = None,
    steps: Annotated[int, typer.Option(metavar="N", min=1, help="Steps to train.")] = Settings.steps,
    seed: Annotated[
        int, typer.Option(metavar="N", min=0, max=2**63 - 1, help="Of weights and batches.")
    ] = Settings.seed,
) -> None:
    """Train a small character transformer on the CPU, about a minute on two cores, and record it.

    Example:
      sonde demo
      sonde demo --run runs/short --steps 50
    """
    from sonde.cli.progress import progress

    require_torch("`sonde demo` trains a model and")
    folder = run or Path("runs") / f"demo-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    look = f"sonde show {shlex.quote(str(folder))}"
    losses: list[float] = []
    started = time.monotonic()
    stderr = console.terminal(sys.stderr)

    try:
        with stderr.status("loading PyTorch"):
            # Read when torch is loaded: threads that wait then sleep. Measured on two cores, beside two busy processes:
            # 0.20 s a step instead of 0.34 s; without them no difference.
            os.environ.setdefault("OMP_WAIT_POLICY", "passive")
            import torch

            from sonde.demo.training import train

        torch.set_num_threads(min(_MAX_THREADS, torch.get_num_threads()))
        with progress(stderr, steps) as report:

            def on_step(step: int, loss: float) -> None:
                losses.append(loss)
                report(step, loss)

            sample = train(folder, Settings(steps=steps, seed=seed), on_step=on_step)
    except KeyboardInterrupt:
        if not losses:
            raise
        raise console.CommandError(
            f"interrupted at step {len(losses)}; what was recorded is kept: {look}", status=130
        ) from None

    lines = textwrap.wrap(" ".join(sample.split()[:-1]) + " …", width=76, initial_indent="  ", subsequent_indent="  ")
    print("The model now writes:", *lines, sep="\n")
    elapsed = duration(time.monotonic() - started)
    print(f"\n{steps} steps in {elapsed}, loss {number(losses[0])} → {number(losses[-1])}")
    print(f"recorded in {folder}; look at it with:\n")
    runs = shlex.quote(str(folder.parent))
    page = f"\n  sonde ui {runs}   # in a browser, live" if available("fastapi") else ""
    print(f"  {look}\n  sonde runs {runs}{page}")
