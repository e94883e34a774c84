"""What `sonde run` costs the scripts in examples/scripts, each within one process: the watching is switched off and on.

Two equal processes may differ by a fifth for as long as they live, by where their memory happens to lie, which
`script_cost.py` can only average out. Here turns with and without come from one process. While it is off, listeners and
hooks stay in place and return at once, and the threads and the doctor's process have nothing to do; turns are long
against the half second by which they are behind, and the first tenth of each is not counted. What stays is not
measured: a few microseconds a step for wrappers that return at once, and what it means to have a heap with Sonde in it.

A turn is compared with the mean of the two beside it; the ratio is the median over turns, with its quartiles.

Usage: python benchmarks/script_switched.py [--turns 20] [--turn-s 4] [--only NAME]... [--threads 2]
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measure import print_machine, print_table
from script_cost import ALIKE, NUM_CORES, SCRIPTS, TIMED

import sonde

_WARM_STEPS = 900


class Switch:
    """Turns of a training, told by the steps of the optimiser that steps first."""

    def __init__(self, turns: int, turn_s: float, out: Path) -> None:
        self._turns, self._turn_s, self._out = turns, turn_s, out
        self.is_on = True
        self._first: int | None = None
        self._num = 0
        self._turn_began = time.perf_counter()
        self._counted_from: tuple[int, float] | None = None
        self._means: list[float] = []
        self.watches: list[Any] = []

    def step(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """After each step of any optimiser."""
        if self._first is None:
            self._first = id(optimizer)
        if id(optimizer) != self._first:
            return
        self._num += 1
        now = time.perf_counter()
        if self._num <= _WARM_STEPS:
            self._turn_began = now
            return
        if self._counted_from is None:
            if now - self._turn_began > self._turn_s / 10:
                self._counted_from = self._num, now
        elif now - self._turn_began > self._turn_s:
            num, began = self._counted_from
            self._means.append((now - began) / (self._num - num))
            self._turn_began, self._counted_from = now, None
            self.is_on = not self.is_on
            for watch in self.watches if self.is_on else ():
                watch._iteration.left()  # the time between belongs to no step
            if len(self._means) == self._turns:
                partial = self._out.with_name(f"{self._out.name}-{os.getpid()}")  # of several processes one is enough
                partial.write_text(json.dumps(self._means))
                partial.replace(self._out)
                os._exit(0)


def _run(script: str, args: list[str], switch: Switch, folder: Path) -> None:
    """In a process of its own: the script, watched in every other turn, the first among them."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from sonde.integrations import listening, runner
    from sonde.monitor import optimizer_hooks, session

    def silenced(function: Any) -> Any:
        return lambda *given: function(*given) if switch.is_on else None

    guarded, made = listening.Listening.guarded, session.Watch.__init__

    def begin(self: Any, *given: Any, **named: Any) -> None:
        made(self, *given, **named)
        switch.watches.append(self)

    listening.Listening.guarded = lambda self, function: silenced(guarded(self, function))  # type: ignore[method-assign]
    session.Watch.__init__ = begin  # type: ignore[method-assign]
    for name in ("_pre", "_post", "_on_clip", "_on_scaler"):
        setattr(optimizer_hooks.OptimizerHooks, name, silenced(getattr(optimizer_hooks.OptimizerHooks, name)))
    register_optimizer_step_post_hook(switch.step)
    runner.run(runner.Script(target=script, args=args, run=folder / f"run-{os.getpid()}"))


def _measure(name: str, options: argparse.Namespace, folder: Path) -> list[float]:
    """Seconds a step of each turn, of the first process that has all of them."""
    script, out = TIMED[name], folder / f"{name}.json"
    here = ["--child", name, "--turns", str(options.turns), "--turn-s", str(options.turn_s), "--out", str(out)]
    command = [sys.executable, "-u", str(Path(__file__).resolve()), *here]
    if script.launcher:
        command = [sys.executable, *script.launcher, *command]
    threads = 1 if script.launcher else options.threads
    environment = {**os.environ, **ALIKE, "OMP_NUM_THREADS": str(threads), "SONDE_CONSOLE": "quiet"}
    environment["PYTHONPATH"] = str(Path(sonde.__file__).parents[1])
    with (folder / "log").open("w") as log:
        subprocess.run(command, cwd=folder, env=environment, stdout=log, stderr=log, check=False)
    if not out.exists():
        raise RuntimeError(f"{name} ended before its last turn:\n{(folder / 'log').read_text()[-2000:]}")
    means: list[float] = json.loads(out.read_text())
    return means


def main() -> None:
    parser = argparse.ArgumentParser(description="What `sonde run` costs scripts, switched off and on in one process.")
    parser.add_argument("--turns", type=int, default=20, help="half of them with")
    parser.add_argument("--turn-s", type=float, default=4.0, help="seconds a turn")
    parser.add_argument("--only", choices=TIMED, action="append", help="may be repeated")
    parser.add_argument("--threads", type=int, default=NUM_CORES, help="of torch, in scripts of one process")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        switch = Switch(options.turns, options.turn_s, options.out)
        _run(str(SCRIPTS / options.child), list(TIMED[options.child].args), switch, options.out.parent)
        return
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:NUM_CORES])
    print("## `sonde run` switched off and on\n")
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        print_machine(("numpy", "pyarrow", "torch"), folder)
        there = [name for name, script in TIMED.items() if importlib.util.find_spec(script.package)]
        for name in options.only or there:
            means = _measure(name, options, folder)
            with_it = range(2, len(means) - 1, 2)  # the first is beside none before it
            ratios = [2 * means[i] / (means[i - 1] + means[i + 1]) for i in with_it]
            without = [2 * means[i] / (means[i - 2] + means[i + 2]) for i in range(3, len(means) - 2, 2)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            rows.append(
                (
                    name,
                    f"{1e3 * statistics.median(means[1::2]):.1f} ms",
                    f"{middle:.3f} ({low:.3f} to {high:.3f})",
                    f"{statistics.median(without):.3f}",
                )
            )
            print(f"{name}: {rows[-1]}", file=sys.stderr, flush=True)
    header = ("script", "step without", "with", "without, against its neighbours")
    print_table(f"{options.turns} turns of {options.turn_s:g} s, {options.threads} threads", header, rows)


if __name__ == "__main__":
    main()
