"""What `sonde run` costs the scripts in examples/scripts on two CPU cores.

Each script runs three times at once: twice alone (the second is the control) and once by `sonde run`. Only one of them
runs at a time: the others are stopped (SIGSTOP, with whatever they started), so that what Sonde leaves to its threads
and to the doctor's process is paid in its own turns. A turn lasts some lines of the script's log, whose times are taken
as they come through a pipe; the first of a turn is not counted. Rounds are shuffled. Two equal processes may differ by
a fifth for as long as they live, by where their memory happens to lie: so all begin anew several times (`--draws`), and
the C library is kept from giving memory back, which costs one process hundreds of page faults a step and another none.
The first 900 steps, of which 500 are looked at more closely, are not counted. Ratios are those of the median
turn with Sonde to the median of all turns without, and of the control to the other one: of the time on the wall, and of
the processor time of the training's own processes, which says less (nobody waits in it) and is little disturbed by
other programs. What the doctor's process takes of a core stands beside them.

Usage: python benchmarks/script_cost.py [--draws 4] [--rounds 5] [--only NAME]... [--threads 1]
"""

import argparse
import contextlib
import importlib.util
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from measure import middle, print_machine, print_table
from overhead_cpu import descendants

import sonde

SCRIPTS = Path(__file__).parents[1] / "examples" / "scripts"
ALONE, CONTROL, WATCHED = "alone", "control", "sonde run"
NUM_CORES = 2
_WARM_STEPS = 10, 900  # the first 500 are looked at more closely, and cadences take a while to settle
ALIKE = {"PYTHONHASHSEED": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_MMAP_THRESHOLD_": str(1 << 40)}


@dataclass(frozen=True)
class Script:
    """How a script is timed.

    Args:
        mark: What the lines contain between which time is taken.
        steps: Of the training, between two of them.
        marks: In a turn. With the two before them they should not divide those of an epoch: turns would always have, or
            never, its evaluation.
        args: So many epochs that it does not end by itself.
        launcher: What starts it instead of `python`.
        package: What must be installed for it, besides torch.
    """

    mark: str
    steps: int
    marks: int
    args: tuple[str, ...]
    launcher: tuple[str, ...] = ()
    package: str = "torch"


class Turn(NamedTuple):
    """Seconds from one mark to the next, on average."""

    wall: float
    own: float
    """Of processor time, of the processes that train."""
    doctor: float
    """Of processor time, of the process that judges."""


TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python")
LONG = ("--epochs", "100000")
TIMED = {
    "word_lstm.py": Script("end of epoch", 58, 1, LONG),
    "char_transformer.py": Script("iter", 10, 5, ("--steps", "1000000", "--eval-interval", "1000000")),
    "cnn_steplr.py": Script("Loss: ", 10, 7, (*LONG, "--log-interval", "10", "--samples", "9600", "--gamma", "1.0")),
    "vae.py": Script("Train Epoch", 10, 13, (*LONG, "--samples", "25600")),
    "dcgan.py": Script("Loss_D", 10, 13, (*LONG, "--samples", "6400")),
    "ddp.py": Script("step", 10, 7, LONG, TORCHRUN),
    "lightning_script.py": Script("batch", 10, 31, (*LONG, "--samples", "6400"), package="lightning"),
    "hf_trainer.py": Script(r"step \d+ loss", 10, 21, (*LONG, "--sentences", "4096"), package="transformers"),
}


class Racer:
    """A script that is stopped except during its turns."""

    def __init__(self, name: str, how: str, folder: Path, threads: int) -> None:
        script = TIMED[name]
        self._mark = re.compile(script.mark)
        words = [sys.executable, "-u"]
        target = [str(SCRIPTS / name), *script.args]
        ours = ["-m", "sonde", "run", "--run-dir", str(folder / "run")] if how == WATCHED else []
        command = [*words, *ours, *target]
        if script.launcher:
            command = [*words, *script.launcher, *command]
        folder.mkdir(parents=True)
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env={
                **os.environ,
                **ALIKE,
                "PYTHONPATH": str(Path(sonde.__file__).parents[1]),
                "OMP_NUM_THREADS": str(threads),
            },
            stdout=subprocess.PIPE,
            stderr=(folder / "err").open("w"),
        )
        assert self._process.stdout is not None
        self._pipe = self._process.stdout
        self._pending = b""

    def turn(self, num_marks: int) -> Turn:
        """Run for so many marks and one more, which is not counted."""
        self.signal(signal.SIGCONT)
        self._wait()
        began = self._wait(), *self._used()
        for _ in range(num_marks):
            ended = self._wait()
        used = self._used()
        self.signal(signal.SIGSTOP)
        return Turn(*((after - before) / num_marks for after, before in zip((ended, *used), began, strict=True)))

    def _used(self) -> tuple[float, float]:
        """Processor time so far, in seconds: of the training, and of the doctor."""
        own = doctor = 0.0
        for pid in self._pids():
            with contextlib.suppress(OSError):
                is_doctor = b"sonde.monitor.doctor.process" in Path(f"/proc/{pid}/cmdline").read_bytes()
                tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
                used = sum(int(task.read_text().split()[0]) for task in tasks) / 1e9
                own, doctor = (own, doctor + used) if is_doctor else (own + used, doctor)
        return own, doctor

    def _pids(self) -> Iterator[int]:
        yield self._process.pid
        yield from descendants(self._process.pid)

    def _wait(self) -> float:
        """When the next mark came."""
        while True:
            while b"\n" in self._pending:
                line, _, self._pending = self._pending.partition(b"\n")
                if self._mark.search(line.decode()):
                    return time.perf_counter()
            more = os.read(self._pipe.fileno(), 1 << 16)
            if not more:
                raise RuntimeError(f"{self._process.args!r} has ended; see its messages.")
            self._pending += more

    def signal(self, number: signal.Signals) -> None:
        """Send it to the process and whatever it started."""
        for pid in list(self._pids()):  # all of them first: children of a process that is killed are found no more
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """End it."""
        self.signal(signal.SIGKILL)
        self._process.wait()


def race(name: str, rounds: int, threads: int, folder: Path) -> dict[str, list[Turn]]:
    """The turns of each contender."""
    shuffle = random.Random(0).shuffle
    script = TIMED[name]
    found: dict[str, list[Turn]] = {how: [] for how in (ALONE, CONTROL, WATCHED)}
    with contextlib.ExitStack() as stack:
        racers = {}
        for how in found:
            racers[how] = Racer(
                name, how, folder / f"{name}-{how.replace(' ', '-')}", 1 if script.launcher else threads
            )
            stack.callback(racers[how].kill)
            racers[how].turn(-(-_WARM_STEPS[how == WATCHED] // script.steps))
        for _ in range(rounds):
            order = list(found)
            shuffle(order)
            for how in order:
                found[how].append(racers[how].turn(script.marks))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="What `sonde run` costs the example scripts on two CPU cores.")
    parser.add_argument("--draws", type=int, default=4, help="times that all contenders begin anew")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contender, each time")
    parser.add_argument("--only", choices=TIMED, action="append", help="may be repeated")
    parser.add_argument("--threads", type=int, default=NUM_CORES, help="of torch, in scripts of one process")
    parser.add_argument("--keep", type=Path, help="where runs and messages stay; a temporary folder where left out")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exception, so that what is stopped is ended as well
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:NUM_CORES])
    print("## `sonde run` on two CPU cores\n")
    print(f"`python benchmarks/script_cost.py --draws {options.draws} --rounds {options.rounds}`:\n")
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        print_machine(("numpy", "pyarrow", "torch"), folder.parent)
        there = [name for name, script in TIMED.items() if importlib.util.find_spec(script.package)]
        for name in options.only or there:
            found: dict[str, list[Turn]] = {}
            for draw in range(options.draws):
                for how, turns in race(name, options.rounds, options.threads, folder / str(draw)).items():
                    found.setdefault(how, []).extend(turns)
            alone, control, bare, watched = (
                Turn(*map(middle, zip(*turns, strict=True)))
                for turns in (found[ALONE], found[CONTROL], found[ALONE] + found[CONTROL], found[WATCHED])
            )
            rows.append(
                (
                    name,
                    f"{1e3 * bare.wall / TIMED[name].steps:.1f} ms",
                    f"{control.wall / alone.wall:.3f}",
                    f"{watched.wall / bare.wall:.3f}",
                    f"{control.own / alone.own:.3f}",
                    f"{watched.own / bare.own:.3f}",
                    f"{watched.doctor / watched.wall:.1%}",
                )
            )
            print(f"{name}: {rows[-1]}", file=sys.stderr, flush=True)
    print(f"- load average at the end {os.getloadavg()[0]:.2f}")
    header = (
        "script",
        "step alone",
        "control",
        "`sonde run`",
        "control, processor",
        "`sonde run`, processor",
        "doctor",
    )
    print_table(f"{options.draws} times {options.rounds} rounds, {options.threads} threads", header, rows)


if __name__ == "__main__":
    main()
