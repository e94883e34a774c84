"""Whether the first remedy that Sonde proposes repairs the fault.

The recorded faulty run is diagnosed by replay and the first remedy of its first alarm is taken, as a user would.

- A remedy with a value or a switch that the training takes (`Session.knobs`) is applied, the training is run again
  without a monitor, and it is repaired if its quality is no worse than its twin's by `tolerance`, or if no more than
  5% of the gap between the faulty run (its first loss, where it diverged) and the twin is left.
- A remedy that a person has to carry out (`fix-loop`, `normalise-inputs`, …) is right if it is the action that makes
  the twin (`Scenario.cures`) and is given for the right cause: `fix-loop` for another mistake does not count.
- All else fails: no alarm, no remedy, an action that this training cannot take.

Only scenarios that some action of the vocabulary can repair take part: `repairable`, or with `cures`. Left out are
accidents (weights overwritten in mid-run), data that are bad for good (label noise, drift, too few examples), machines
that are slow, and mistakes that no action names (a penalty of the wrong sign, padding that counts, too much dropout,
ten sigmoids in a row).
"""

import argparse
import concurrent.futures
import json
import math
import multiprocessing
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.faults.judging import Judgement
from benchmarks.faults.run import catalogue
from benchmarks.faults.scenario import Scenario, Session
from benchmarks.faults.score import judge_all, rows_of
from benchmarks.faults.seat import unwatched

GAP_LEFT = 0.05
"""Where the twin's loss is next to nothing, 20% of it are less than two seeds differ by."""

_VALUES = {
    "lower-lr": ("factor", "lr_factor"),
    "raise-lr": ("factor", "lr_factor"),
    "clip": ("max_norm", "clip_norm"),
    "lengthen-warmup": ("steps", "warmup_steps"),
    "add-weight-decay": ("weight_decay", "weight_decay"),
    "lower-weight-decay": ("factor", "weight_decay_factor"),
    "add-dropout": ("p", "dropout"),
    "bigger-batch": ("factor", "batch_factor"),
}
"""Action: the argument of the remedy, the knob of the session."""
_SWITCHES = {"add-qk-norm", "add-layernorm", "reinitialise", "use-bf16", "use-fp32", "early-stop"}


@dataclass(frozen=True, kw_only=True)
class Repair:
    """What became of a faulty run by its first remedy.

    Args:
        name: Of the scenario.
        seed: Of the run.
        cause: The truth.
        named: The cause that the remedy is for.
        action: Of the remedy.
        args: Its values.
        outcome: In words.
        repaired: Whether it helped.
        quality: Of the run with the remedy, None where it was not run.
        faulty: Quality of the faulty run, None where it diverged.
        twin: Quality of the twin.
    """

    name: str
    seed: int
    cause: str
    named: str
    action: str
    args: dict[str, Any]
    outcome: str
    repaired: bool
    quality: float | None = None
    faulty: float | None = None
    twin: float | None = None

    def __str__(self) -> str:
        numbers = " ".join(
            f"{what} {value:.3g}"
            for what, value in (("faulty", self.faulty), ("with it", self.quality), ("twin", self.twin))
            if value is not None
        )
        values = ",".join(f"{key}={value}" for key, value in self.args.items())
        remedy = f"{self.action or '-'}({values})"
        return f"{self.name:40}{self.seed:3} {self.named or '-':26}{remedy:34} {self.outcome}  {numbers}"


def knobs_of(action: str, args: Mapping[str, Any]) -> dict[str, float] | None:
    """The session's knobs for a remedy; None where it has none for it.

    Example:
        >>> knobs_of("lower-lr", {"factor": 0.1}), knobs_of("add-qk-norm", {}), knobs_of("fix-loop", {})
        ({'lr_factor': 0.1}, {'add-qk-norm': 1.0}, None)
    """
    if action in _SWITCHES:
        return {action: 1.0}
    if action not in _VALUES:
        return None
    argument, knob = _VALUES[action]
    return {knob: float(args[argument])} if argument in args else None


def train_with(scenario: Scenario, seed: int, knobs: Mapping[str, float]) -> float:
    """The quality of the faulty training under a remedy, NaN where it fails."""
    import torch

    torch.set_num_threads(1)
    try:
        return float(scenario.train(Session(seed=seed, folder=Path(), knobs=knobs, monitor=unwatched)))
    except (ValueError, RuntimeError):  # a remedy may ask for what cannot be trained, a batch beyond the data for one
        return math.nan


def reached(quality: float, *, twin: float, faulty: float, tolerance: float) -> bool:
    """Whether a repaired run is as good as its twin.

    Example:
        >>> reached(0.11, twin=0.1, faulty=2.0, tolerance=0.2), reached(0.5, twin=0.1, faulty=2.0, tolerance=0.2)
        (True, False)
    """
    gap = faulty - twin if math.isfinite(faulty) else 0.0
    return quality <= max(twin + tolerance * abs(twin), twin + GAP_LEFT * gap)


def prescribe(scenario: Scenario, run: Judgement) -> tuple[str, bool, dict[str, float] | None]:
    """Outcome and whether it is right where no training is needed to tell; else the knobs to train with."""
    if not run.action:
        return "no remedy" if run.codes else "no alarm", False, None
    if run.action in scenario.cures:
        right = run.remedy_cause in run.right
        return ("what the twin does" if right else "for another mistake"), right, None
    knobs = knobs_of(run.action, run.remedy_args) if scenario.repairable else None
    return ("", False, knobs) if knobs else ("not what helps here", False, None)


def prove(folder: Path, rows: Sequence[dict[str, Any]], *, jobs: int) -> list[Repair]:
    """Try the first remedy of each faulty run of `rows` that can be repaired."""
    truth = catalogue()
    qualities = {(row["name"], row["seed"], row["twin"]): float(row.get("quality", math.nan)) for row in rows}
    faulty = [
        row
        for row in rows
        if row["name"] in truth and not row["twin"] and (truth[row["name"]].repairable or truth[row["name"]].cures)
    ]
    runs = list(judge_all(folder, faulty, jobs=jobs))
    told = [prescribe(truth[run.name], run) for run in runs]
    with concurrent.futures.ProcessPoolExecutor(jobs, multiprocessing.get_context("forkserver")) as pool:
        trainings = [
            pool.submit(train_with, truth[run.name], run.seed, knobs) if knobs else None
            for run, (_, _, knobs) in zip(runs, told, strict=True)
        ]
        repairs = []
        for run, (outcome, repaired, _), training in zip(runs, told, trainings, strict=True):
            bad, good = qualities[run.name, run.seed, False], qualities.get((run.name, run.seed, True), math.nan)
            quality = training.result() if training else None
            if quality is not None:
                start = run.first_loss if run.first_loss is not None else math.nan
                repaired = reached(
                    quality, twin=good, faulty=bad if math.isfinite(bad) else start, tolerance=truth[run.name].tolerance
                )
                outcome = "repaired" if repaired else "not repaired"
            repairs.append(
                Repair(
                    name=run.name,
                    seed=run.seed,
                    cause=run.cause,
                    named=run.remedy_cause,
                    action=run.action,
                    args=run.remedy_args,
                    outcome=outcome,
                    repaired=repaired,
                    quality=_finite(quality),
                    faulty=_finite(bad),
                    twin=_finite(good),
                )
            )
    return repairs


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def render(repairs: Sequence[Repair]) -> str:
    """The share of repaired runs, and those that were not, a line each."""
    helped = [repair for repair in repairs if repair.repaired]
    lines = ["| what | share | runs | goal |", "|---|---|---|---|"]
    for what, some in (
        ("repaired by the first remedy", repairs),
        ("… of those run again with it", [repair for repair in repairs if repair.quality is not None]),
        ("… of those where the cause was right", [r for r in repairs if r.named and _is_right(r)]),
    ):
        num = sum(repair.repaired for repair in some)
        if some:
            lines.append(f"| {what} | {num / len(some):.1%} | {num} of {len(some)} | ≥ 90% |")
    if len(helped) < len(repairs):
        lines += ["", "Not repaired:", "", *(f"    {repair}" for repair in repairs if not repair.repaired)]
    return "\n".join(lines)


def _is_right(repair: Repair) -> bool:
    scenario = catalogue()[repair.name]
    return repair.named in {scenario.cause, *scenario.also}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.faults.remedy",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="where `python -m benchmarks.faults.run --out` recorded them")
    parser.add_argument("--seeds", choices=("odd", "even", "all"), default="all", help="odd: test; even: tuning")
    parser.add_argument("--only", default="*", help="pattern of names, as of a shell; several with commas")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes that judge and train")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what became of each run there")
    options = parser.parse_args()
    repairs = prove(options.folder, rows_of(options.folder, seeds=options.seeds, only=options.only), jobs=options.jobs)
    print(render(repairs))
    if options.json:
        options.json.write_text(json.dumps([asdict(repair) for repair in repairs], indent=1) + "\n")


if __name__ == "__main__":
    main()
