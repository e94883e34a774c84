"""The table of `score.py` for other tools: torchmortem and trainscope, where they are installed.

Each scenario is trained with the peer attached where Sonde would be, as the peer's own documentation shows, with its
default settings. What a peer says is put into our vocabulary of causes, generously: see `_TORCHMORTEM` and
`_TRAINSCOPE`. torchmortem speaks at the end of a run only, so that its delay is the rest of the run.

In an environment with torch and a peer, for instance: PYTHONPATH=src python -m benchmarks.faults.peers --only 'mlp-*'
"""

import argparse
import concurrent.futures
import fnmatch
import importlib.util
import itertools
import json
import logging
import math
import multiprocessing
import os
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from benchmarks.faults import table
from benchmarks.faults.judging import Alarm, Judgement
from benchmarks.faults.run import catalogue
from benchmarks.faults.scenario import Scenario, Session
from benchmarks.faults.seat import Seat

_TORCHMORTEM = {
    "Dead units": "dead-units",
    "Vanishing gradients": "vanishing-gradients",
    "Exploding gradients": "exploding-gradients",
    "Gradient stalling": "vanishing-gradients",  # of one layer
    "High gradient noise": "batch-too-small",  # advises a larger batch
    "Training divergence": "lr-too-high",  # its text says so
    "Loss plateau": "plateau",
    "Rank collapse": "symmetric-initialisation",  # the nearest: units that do the same
    "Activation saturation": "saturated-units",
    "Update ratio too low": "lr-too-low",
    "Update ratio too high": "lr-too-high",
    "Weight norm explosion": "weight-norm-jump",
    "Stagnant weight norms": "lr-too-low",
    "Inter-layer weight norm imbalance": "bad-initialisation",
}
"""The beginning of a finding's title: the cause. Its INFO findings are no alarms."""

_TRAINSCOPE = {"spike": ("lr-too-high", "bad-batch"), "non-finite": ("lr-too-high", "exploding-gradients")}
"""It names no cause. A spike of the loss is most often one of these two, the second as the second guess."""


class Said(NamedTuple):
    """Something that a peer said.

    Args:
        code: In its own words.
        critical: Whether it finds it so.
        causes: In ours, the likeliest first.
    """

    code: str
    critical: bool
    causes: tuple[str, ...]


class Peer(Protocol):
    """Another tool, attached to a training."""

    def step(self, loss: float) -> Sequence[Said]:
        """One iteration is over; what it says to that."""

    def close(self) -> Sequence[Said]:
        """The training is over; what it says in the end."""


class Torchmortem:
    """`torchmortem.Autopsy`, which reports after the training."""

    def __init__(self, model: Any, optimizer: Any) -> None:
        import torchmortem

        self._autopsy = torchmortem.Autopsy(model, optimizer=optimizer)
        self._autopsy.attach()

    def step(self, loss: float) -> Sequence[Said]:
        """Nothing, yet."""
        self._autopsy.step(loss=loss)
        return ()

    def close(self) -> Sequence[Said]:
        """Its report."""
        self._autopsy.detach()
        report = self._autopsy.get_report()
        said = []
        for finding in report.findings if report is not None else ():
            causes = tuple(cause for title, cause in _TORCHMORTEM.items() if finding.title.startswith(title))
            if finding.severity.name != "INFO":
                said.append(Said(finding.category, finding.severity.name == "CRITICAL", causes))
        return said


class Trainscope:
    """`trainscope.TrainScope`, which tells of spikes as they come."""

    def __init__(self, model: Any, optimizer: Any) -> None:
        import trainscope

        self._folder = tempfile.TemporaryDirectory()
        config = trainscope.TrainScopeConfig(run_dir=self._folder.name, run_name="run")
        self._scope = trainscope.TrainScope(model, optimizer, config).attach()

    def step(self, loss: float) -> Sequence[Said]:
        """A spike, or a loss that is not finite, of which it warns in its log."""
        spike = self._scope.step(loss)
        kind = "spike" if spike is not None else "" if math.isfinite(loss) else "non-finite"
        return [Said(kind, kind == "non-finite", _TRAINSCOPE[kind])] if kind else ()

    def close(self) -> Sequence[Said]:
        """Nothing more."""
        self._scope.detach()
        self._folder.cleanup()
        return ()


PEERS: dict[str, Callable[[Any, Any], Peer]] = {"torchmortem": Torchmortem, "trainscope": Trainscope}


def judge(peer: str, scenario: Scenario, seed: int, twin: bool) -> Judgement | None:
    """Train with the peer attached; None where it makes the training fail."""
    import torch

    torch.set_num_threads(1)
    logging.disable()
    warnings.simplefilter("ignore")  # of their hooks
    losses: list[float] = []
    alarms: list[Alarm] = []
    causes: list[str] = []
    evaluated: list[int] = []

    def note(said: Sequence[Said]) -> None:
        alarms.extend(Alarm(step=len(losses) - 1, code=one.code, critical=one.critical) for one in said)
        causes.extend(cause for one in said for cause in one.causes)

    def watch(model: Any, optimizer: Any, **settings: Any) -> Seat:
        # Peers watch one model with one optimiser.
        one_model = torch.nn.ModuleDict(model) if isinstance(model, dict) else model
        one_optimizer = next(iter(optimizer.values())) if isinstance(optimizer, dict) else optimizer
        attached = PEERS[peer](one_model, one_optimizer)

        def step(loss: Any) -> None:
            losses.append(float(loss.detach()))
            note(attached.step(losses[-1]))

        return Seat(step, on_evaluate=lambda _: evaluated.append(len(losses)), on_close=lambda: note(attached.close()))

    try:
        scenario.train(Session(seed=seed, folder=Path(), fixed=twin, monitor=watch))
    except Exception as error:  # theirs may be of any kind
        print(f"{peer} on {scenario.name}: {error!r}", flush=True)
        return None
    bad = next((step for step, loss in enumerate(losses) if not math.isfinite(loss)), None)
    return Judgement(
        name=scenario.name,
        seed=seed,
        kind="healthy" if scenario.cause is None else "twin" if twin else "faulty",
        cause=scenario.cause or "",
        also=scenario.also,
        onset=scenario.onset,
        hard=scenario.hard,
        epoch_steps=max((b - a for a, b in itertools.pairwise(evaluated)), default=None),
        nonfinite_step=bad,
        finite_steps=bad or 0,
        alarms=tuple(alarms),
        codes=tuple(dict.fromkeys(alarm.code for alarm in alarms)),
        causes=tuple(dict.fromkeys(causes)),
    )


def judge_all(peer: str, scenarios: Sequence[Scenario], seeds: Sequence[int], *, jobs: int) -> list[Judgement]:
    """All of these trainings, each in a process of its own; scenarios of several ranks are left out."""
    asked = [
        (scenario, seed, twin)
        for scenario in scenarios
        for seed in seeds
        for twin in ((True,) if scenario.cause is None else (False, True))
        if scenario.ranks == 1
    ]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.faults.catalogue"])
    with concurrent.futures.ProcessPoolExecutor(jobs, context, max_tasks_per_child=1) as pool:
        judged = [pool.submit(judge, peer, *one) for one in asked]
        return [found for one in judged if (found := one.result()) is not None]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.faults.peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", default="1", help="with commas; odd ones are for the test")
    parser.add_argument("--only", default="*", help="pattern of names, as of a shell; several with commas")
    parser.add_argument("--peer", default=",".join(PEERS), help="which, with commas")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="trainings at a time")
    parser.add_argument("--list", action="store_true", help="also the runs that were judged wrongly")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures and runs there, by peer")
    options = parser.parse_args()
    patterns = options.only.split(",")
    chosen = [s for name, s in catalogue().items() if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
    found = {}
    for peer in options.peer.split(","):
        if importlib.util.find_spec(peer) is None:
            print(f"{peer} is not installed: pip install {peer}\n")
            continue
        runs = judge_all(peer, chosen, [int(seed) for seed in options.seeds.split(",")], jobs=options.jobs)
        found[peer] = table.to_json(runs)
        print(f"## {peer}\n")
        if options.list:
            print(table.listing(runs), end="\n\n")
        print(table.render(runs), end="\n\n")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
