"""What watching costs on two CPU cores: a transformer of 2.7 million parameters, Sonde and other monitors side by side.

Every contender trains its own equal model in its own process, and only one process runs at a time: the others are
stopped (SIGSTOP, with whatever they started), so that what a monitor leaves to its threads and helpers is paid in its
own turns and taxes nobody else. A round is one turn of some steps for each contender, in shuffled order; a turn is
divided by the unwatched turn of the same round. A second unwatched contender (`control`) shows how far two equal
trainings come apart.

The first step of a turn is made but not counted: memory has gone cold, timers have run out meanwhile, and threads still
have the end of the last turn to do. What the last counted step leaves to threads is not counted either; what the
uncounted one leaves is, so that the sum is right.

Usage: python benchmarks/overhead_cpu.py [--rounds 40] [--steps 10] [--warmup 200] [--restarts 1] [--only NAME]...
    [--json FILE]

Peers that are not installed are left out and named. To install them beside Sonde, into an environment of their own:
    python -m venv peers
    peers/bin/pip install -c constraints.txt torch==2.13.0 wandb tensorboard torchmortem trainscope -e .
    peers/bin/python benchmarks/overhead_cpu.py
"""

import argparse
import contextlib
import ctypes
import importlib.metadata
import importlib.util
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from measure import middle, percentile, print_machine, print_table
from torch import Tensor
from torch.nn import functional

import sonde
from sonde.core.cadences import every
from sonde.demo import corpus
from sonde.demo.model import Shape, Transformer, initialise
from sonde.probes.cadences import Cadences

BATCH = 16  # × 64 characters: 0.1 to 0.2 s a step on two cores
NUM_CORES = 2
UNWATCHED = "unwatched"
_START_S = 300.0  # imports and the first steps, on a machine that may be busy
_TURN_S = 600.0
_PR_SET_PDEATHSIG = 1


class Training:
    """A model, its optimiser and its batches: equal in all contenders."""

    def __init__(self) -> None:
        self._generator = torch.Generator().manual_seed(0)
        text = corpus.text()
        number = {character: i for i, character in enumerate(sorted(set(text)))}
        self._ids = torch.tensor([number[character] for character in text])
        self.model = Transformer(Shape(vocabulary=len(number), width=192, depth=6, heads=6))
        initialise(self.model, self._generator)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def step(self, step: int, monitor: "Monitor") -> None:
        context = self.model.shape.context
        starts = torch.randint(len(self._ids) - context, (BATCH, 1), generator=self._generator)
        windows = self._ids[starts + torch.arange(context + 1)]
        self.optimizer.zero_grad()
        loss = functional.cross_entropy(self.model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())
        loss.backward()
        monitor.before(step, loss)
        self.optimizer.step()
        monitor.after(step, loss)


def _nothing(step: int, loss: Tensor) -> None:
    pass


@dataclass
class Monitor:
    """What a contender does in a step: `before` the optimiser's step, and `after` it."""

    before: Callable[[int, Tensor], object] = _nothing
    after: Callable[[int, Tensor], object] = _nothing
    note: str = ""
    """What it says of itself when it is closed."""


# The contenders: each is what its own documentation shows for a loop, with its defaults where none are named.


@contextlib.contextmanager
def unwatched(training: Training, folder: Path) -> Iterator[Monitor]:
    yield Monitor()


@contextlib.contextmanager
def watched(training: Training, folder: Path, **settings: Any) -> Iterator[Monitor]:
    run = folder / "run"
    watch = sonde.watch(training.model, training.optimizer, run=run, **settings)
    monitor = Monitor(after=lambda step, loss: watch.step(loss))
    yield monitor
    watch.close()
    found = sonde.load(run)
    own, stretch = (found.series(f"monitor/{name}").value for name in ("time", "stretch"))
    tail = own[len(own) // 2 :]
    monitor.note = (
        f"own time, later half: mean {tail.mean() * 1e3:.2f} ms, median {np.median(tail) * 1e3:.2f} ms; "
        f"stretch at the end {stretch[-1]:.2f}; {len(found.tags())} series"
    )


def watched_every_step(training: Training, folder: Path) -> contextlib.AbstractContextManager[Monitor]:
    # As often as the peers are asked to measure, and no budget that would make it rarer.
    return watched(training, folder, budget=1.0, cadence=Cadences(layers=every(1), rotating=every(8)))


@contextlib.contextmanager
def item_loop(training: Training, folder: Path) -> Iterator[Monitor]:
    seen: dict[str, tuple[float, float, float]] = {}

    def before(step: int, loss: Tensor) -> None:
        for name, parameter in training.model.named_parameters():
            grad = parameter.grad
            assert grad is not None
            seen[name] = (grad.norm().item(), grad.mean().item(), grad.std().item())

    yield Monitor(before=before)


@contextlib.contextmanager
def tensorboard_scalars(training: Training, folder: Path) -> Iterator[Monitor]:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder)) as writer:

        def before(step: int, loss: Tensor) -> None:
            writer.add_scalar("loss", loss.item(), step)
            for name, parameter in training.model.named_parameters():
                assert parameter.grad is not None
                writer.add_scalar(f"grad_norm/{name}", parameter.grad.norm(), step)

        yield Monitor(before=before)


@contextlib.contextmanager
def tensorboard_histograms(training: Training, folder: Path) -> Iterator[Monitor]:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder)) as writer:

        def before(step: int, loss: Tensor) -> None:
            writer.add_scalar("loss", loss.item(), step)
            for name, parameter in training.model.named_parameters():
                assert parameter.grad is not None
                writer.add_histogram(f"grad/{name}", parameter.grad, step)

        yield Monitor(before=before)


@contextlib.contextmanager
def wandb_watch(training: Training, folder: Path) -> Iterator[Monitor]:
    os.environ["WANDB_SILENT"] = "true"
    import wandb

    with wandb.init(project="overhead", mode="offline", dir=str(folder)) as run:
        run.watch(training.model, log="all", log_freq=1)
        yield Monitor(after=lambda step, loss: run.log({"loss": loss.item()}))


@contextlib.contextmanager
def torchmortem(training: Training, folder: Path) -> Iterator[Monitor]:
    from torchmortem import Autopsy

    with Autopsy(training.model, optimizer=training.optimizer) as autopsy:
        yield Monitor(after=lambda step, loss: autopsy.step(loss=loss.item()))


@contextlib.contextmanager
def trainscope(training: Training, folder: Path) -> Iterator[Monitor]:
    from trainscope import TrainScope
    from trainscope.core.config import TrainScopeConfig

    scope = TrainScope(training.model, training.optimizer, config=TrainScopeConfig(run_dir=str(folder))).attach()
    yield Monitor(before=lambda step, loss: scope.step(loss.item(), batch_index=step))
    scope.detach()


class Contender(NamedTuple):
    what: str
    start: Callable[[Training, Path], contextlib.AbstractContextManager[Monitor]]
    package: str = ""
    """What must be installed for it."""


CONTENDERS = {
    UNWATCHED: Contender("no monitor", unwatched),
    "control": Contender("no monitor, once more", unwatched),
    "sonde": Contender("**`sonde.watch(model, optimizer)`**, defaults", watched),
    "sonde-every-step": Contender("`sonde.watch`, layers at every step, no budget", watched_every_step),
    "item-loop": Contender("loop over gradients: norm, mean, std `.item()`", item_loop),
    "tensorboard-scalars": Contender("TensorBoard `add_scalar(grad.norm())`", tensorboard_scalars, "tensorboard"),
    "trainscope": Contender("trainscope, defaults", trainscope, "trainscope"),
    "wandb": Contender('`wandb.watch(log="all", log_freq=1)`, offline', wandb_watch, "wandb"),
    "tensorboard-histograms": Contender("TensorBoard `add_histogram(grad)`", tensorboard_histograms, "tensorboard"),
    "torchmortem": Contender("torchmortem, defaults", torchmortem, "torchmortem"),
}


class Clock:
    """Makes `time.perf_counter` stand still between turns.

    A monitor that sets its own time against that of the step (Sonde's budget) would take the turns of all others for a
    step of many seconds and allow itself more than it does in a training that is never stopped.
    """

    def __init__(self) -> None:
        self._real, self._out_s = time.perf_counter, 0.0
        time.perf_counter = self._now

    def _now(self) -> float:
        return self._real() - self._out_s

    def without(self, call: Callable[[], Any]) -> Any:
        """What a call returns; the clock does not run meanwhile."""
        started = self._real()
        result = call()
        self._out_s += self._real() - started
        return result


def serve(name: str, folder: Path, orders: Connection) -> None:
    """A contender's process: make as many steps as ordered, answer how long each took; an order of 0 ends it."""
    # A stopped process would outlive a killed parent.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what monitors print is no part of the tables
    os.chdir(folder)
    clock = Clock()
    torch.set_num_threads(NUM_CORES)
    training = Training()
    step = 0
    with CONTENDERS[name].start(training, folder) as monitor:
        while num_steps := clock.without(orders.recv):
            took = []
            for _ in range(1 + num_steps):
                step += 1
                started = time.perf_counter()
                training.step(step, monitor)
                took.append(time.perf_counter() - started)
            orders.send(took[1:])
    orders.send(monitor.note)


class Racer:
    """A contender as the parent sees it: stopped except during its turns."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        folder.mkdir()
        spawn = multiprocessing.get_context("spawn")
        self._orders, theirs = spawn.Pipe()
        self._process = spawn.Process(target=serve, args=(name, folder, theirs), name=name)
        self._process.start()
        theirs.close()

    def turn(self, num_steps: int, *, timeout_s: float = _TURN_S) -> list[float]:
        """Seconds of each step."""
        self._signal(signal.SIGCONT)
        self._orders.send(num_steps)
        took = self._answer(timeout_s)
        self._signal(signal.SIGSTOP)
        return took

    def close(self) -> str:
        """End the training and have its note."""
        self._signal(signal.SIGCONT)
        self._orders.send(0)
        note = self._answer(_TURN_S)
        self._process.join(_TURN_S)
        return note

    def kill(self) -> None:
        """End what is left of it."""
        if self._process.is_alive():
            self._signal(signal.SIGKILL)
            self._process.join()

    def _answer(self, timeout_s: float) -> Any:
        if not self._orders.poll(timeout_s):
            raise TimeoutError(f"{self.name} did not answer within {timeout_s:.0f} s.")
        try:
            return self._orders.recv()
        except EOFError:
            raise RuntimeError(f"{self.name} has died; its message stands above.") from None

    def _signal(self, number: signal.Signals) -> None:
        mine = self._process.pid
        assert mine is not None
        for pid in (mine, *descendants(mine)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            after_name = stat.read_text().rpartition(")")[2].split()
            children.setdefault(int(after_name[1]), []).append(int(stat.parent.name))
    found = children.get(pid, [])
    for child in found:
        found.extend(children.get(child, []))
    return found


@dataclass
class Results:
    """Seconds of each step, by contender and turn."""

    turns: dict[str, list[list[float]]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def ratios(self, name: str) -> np.ndarray:
        """Each turn against the unwatched one of its round."""
        mine, theirs = (np.array([sum(turn) for turn in self.turns[who]]) for who in (name, UNWATCHED))
        return mine / theirs

    def steps(self, name: str) -> list[float]:
        return [took for turn in self.turns[name] for took in turn]


def race(names: Sequence[str], options: argparse.Namespace, folder: Path, results: Results) -> None:
    """Start all, warm each up, and run the rounds."""
    shuffle = random.Random(0).shuffle
    for restart in range(options.restarts):
        with contextlib.ExitStack() as stack:
            racers = []
            for name in names:  # one after the other: nothing else runs while one warms up and finds its cadences
                racer = Racer(name, folder / f"{name}-{restart}")
                stack.callback(racer.kill)
                # Sonde's budget takes some hundred steps to settle; a training has thousands.
                num_steps = options.warmup * (1 if name.startswith("sonde") else 0.1)
                racer.turn(max(10, int(num_steps)), timeout_s=_START_S + options.warmup * 5)
                racers.append(racer)
                _say(f"{name} is warm")
            for round_ in range(options.rounds // options.restarts):
                shuffle(racers)
                for racer in racers:
                    results.turns.setdefault(racer.name, []).append(racer.turn(options.steps))
                last = (f"{name} {results.ratios(name)[-1]:.3f}" for name in names)
                _say(f"start {restart + 1}, round {round_ + 1}: {', '.join(last)}")
            for racer in racers:
                results.notes[racer.name] = racer.close()


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def interval(ratios: np.ndarray) -> tuple[float, float]:
    """95% of the medians of 10,000 resamplings of the rounds."""
    drawn = np.random.default_rng(0).integers(len(ratios), size=(10_000, len(ratios)))
    low, high = np.percentile(np.median(ratios[drawn], axis=1), [2.5, 97.5])
    return float(low), float(high)


def print_results(names: Sequence[str], results: Results) -> None:
    rows = []
    for name in names:
        ratios, steps = results.ratios(name), results.steps(name)
        low, high = interval(ratios)
        rows.append(
            (
                CONTENDERS[name].what,
                f"{middle(steps) * 1e3:.1f} ms",
                "1" if name == UNWATCHED else f"{np.median(ratios):.3f} ({low:.3f} to {high:.3f})",
                f"{sum(steps) / sum(results.steps(UNWATCHED)):.3f}",
                f"{percentile(steps, 99) * 1e3:.1f} ms",
                f"{percentile(steps, 99) / percentile(results.steps(UNWATCHED), 99):.2f}",
            )
        )
    turns = results.turns[UNWATCHED]
    header = ("what", "step, median", "× unwatched, median of rounds (95%)", "× of all time", "step, p99", "× of p99")
    print_table(f"{len(turns)} rounds of {len(turns[0])} steps", header, rows)
    print()
    for name, note in results.notes.items():
        if note:
            print(f"- {name}: {note}")


def main() -> None:
    parser = argparse.ArgumentParser(description="What watching costs on two CPU cores, beside other monitors.")
    parser.add_argument("--rounds", type=int, default=40, help="turns of each contender")
    parser.add_argument("--steps", type=int, default=10, help="of a turn; a multiple of 10, Sonde's cadence on a CPU")
    parser.add_argument("--warmup", type=int, default=200, help="steps before the first round: cadences settle")
    parser.add_argument("--restarts", type=int, default=1, help="fresh processes this often, the rounds shared out")
    parser.add_argument("--only", choices=CONTENDERS, action="append", help="beside the unwatched; may be repeated")
    parser.add_argument("--json", type=Path, help="where to write the seconds of every step")
    parser.add_argument("--dir", type=Path, help="where monitors write; a temporary folder where left out")
    options = parser.parse_args()
    if not 1 <= options.restarts <= options.rounds:
        parser.error(f"--restarts must be from 1 to --rounds ({options.rounds}), got {options.restarts}.")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exception, so that what is stopped is ended as well
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:NUM_CORES])

    wanted = [name for name in CONTENDERS if not options.only or name in options.only or name == UNWATCHED]
    absent = [
        name for name in wanted if (package := CONTENDERS[name].package) and not importlib.util.find_spec(package)
    ]
    names = [name for name in wanted if name not in absent]
    packages = sorted({CONTENDERS[name].package for name in names} - {""})

    print("## Watching on two CPU cores\n")
    model = Training().model
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    print(
        f"`python benchmarks/overhead_cpu.py --rounds {options.rounds} --steps {options.steps} "
        f"--warmup {options.warmup} --restarts {options.restarts}`: the demo's transformer, {num_parameters:,} "
        f"parameters in {len(list(model.parameters()))} tensors, AdamW, batch {BATCH} × {model.shape.context}, "
        f"{NUM_CORES} threads; each contender in a process of its own, one running at a time:\n"
    )
    results = Results()
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        print_machine(("numpy", "pyarrow", "torch", *packages), Path(folder))
        print(f"- sonde {sonde.__version__}; not installed: {', '.join(absent) or 'none'}")
        sys.stdout.flush()
        race(names, options, Path(folder), results)
    print(f"- load average at the end {os.getloadavg()[0]:.2f}")
    print_results(names, results)
    if options.json:
        versions = {name: importlib.metadata.version(name) for name in ("torch", *packages)}
        found = {"versions": versions, "notes": results.notes, "seconds": results.turns}
        options.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
