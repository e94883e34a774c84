"""How far a training is: a bar on a terminal, now and then a line elsewhere."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sonde.core.quantities import number
from sonde.streams.printing import print_or_drop

_LINE_EVERY_S = 5.0


@contextmanager
def progress(console: Console, num_steps: int) -> Iterator[Callable[[int, float], None]]:
    """Gives what to call after each step, with the step (from 1) and its loss."""
    with (_bar if console.is_terminal else _lines)(console, num_steps) as report:
        yield report


@contextmanager
def _bar(console: Console, num_steps: int) -> Iterator[Callable[[int, float], None]]:
    columns = (
        TextColumn("training"),
        BarColumn(bar_width=36),
        MofNCompleteColumn(),
        TextColumn("loss [bold]{task.fields[loss]}[/]"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("training", total=num_steps, loss="")
        yield lambda step, loss: bar.update(task, completed=step, loss=f"{loss:.3f}")


@contextmanager
def _lines(console: Console, num_steps: int) -> Iterator[Callable[[int, float], None]]:
    printed_at = -math.inf

    def report(step: int, loss: float) -> None:
        nonlocal printed_at
        if time.monotonic() - printed_at >= _LINE_EVERY_S or step == num_steps:
            printed_at = time.monotonic()
            print_or_drop(f"step {step}/{num_steps}  loss {number(loss)}", sys.stderr)

    yield report
