"""Whether the first remedy that Sonde proposes repairs the fault.

The recorded faulty run is diagnosed by replay and the first remedy of its first alarm is taken with its values, as a
user would who believes the diagnosis; nothing of the truth is looked at. What counts, by the kind of fault:

- **By the API.** Some action that can be carried out without touching the training's code (rate, schedule, clipping,
  decay, batch, precision, initialisation, normalisation, skipping: `treatment.py`) can repair it: the scenarios with
  `repairable`, or whose `cures` name such an action. The faulty training is run again from its start, as long as
  before, with the remedy and without a monitor. It is repaired if it comes within 20% (`tolerance`) of the quality of
  its twin, or leaves no more than 5% of the gap between the faulty run (its first loss, where it ended worse) and the
  twin. A wrong diagnosis is not forgiven: the wrong remedy is carried out, and the run decides. An action that only a
  person can carry out fails, unless it is what makes the twin (`cures`) and is given for the right cause.
- **By hand.** Mistakes in the code, the data or the model, which a person repairs as the remedy says (`fix-loop`,
  `inspect-batch`, `more-capacity`, …). Nothing can be run: the advice is right if it is what makes the twin and is
  given for the right cause. Counted apart, so that advice, which costs nothing, does not raise the figure of repairs.

Left out are faults that no action of the vocabulary can undo: accidents (weights overwritten in mid-run), data that are
bad for good (label noise, drift, too few examples), machines that are slow, and mistakes that no action names (a
branch amplified, an activation too steep, padding that counts, too much dropout, features that are copies).

Trainings are kept in FOLDER/treated.jsonl as they end and are not done again, so that a run that was broken off goes
on; delete it when trainings or treatments have changed.
"""

import argparse
import concurrent.futures
import json
import math
import multiprocessing
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

from benchmarks.faults.judging import Judgement
from benchmarks.faults.run import catalogue
from benchmarks.faults.scenario import Scenario, Session
from benchmarks.faults.score import judge_all, rows_of
from benchmarks.faults.treatment import Treatment, can_be_given

GAP_LEFT = 0.05
"""Where the twin's loss is next to nothing, 20% of it are less than chance makes."""


@dataclass(frozen=True, kw_only=True)
class Repair:
    """What became of a faulty run by its first remedy.

    Args:
        name: Of the scenario.
        seed: Of the run.
        cause: The truth.
        kind: `api` or `hand`: how it can be repaired.
        named: The cause that the remedy is for.
        is_right: Whether that is a right one.
        action: Of the remedy.
        args: Its values.
        outcome: In words.
        repaired: Whether it helped.
        quality: Of the run with the remedy, None where it was not run or diverged.
        faulty: Quality of the faulty run, None where it diverged.
        twin: Quality of the twin.
    """

    name: str
    seed: int
    cause: str
    kind: str
    named: str
    is_right: bool
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


def kind_of(scenario: Scenario) -> str:
    """How a fault can be repaired: `api`, `hand`, or "" where it cannot.

    Example:
        >>> truth = catalogue()
        >>> [kind_of(truth[name]) for name in ("mlp-lr-too-high", "mlp-double-softmax", "mlp-label-noise")]
        ['api', 'hand', '']
    """
    if scenario.cause is None:
        return ""
    if "fix-loop" not in scenario.cures and (scenario.repairable or any(map(can_be_given, scenario.cures))):
        return "api"
    return "hand" if scenario.cures else ""


@dataclass(frozen=True)
class Training:
    """A faulty training under a remedy, without a monitor.

    Args:
        name: Of the scenario.
        seed: Of the run.
        action: Of the remedy.
        args: Its values, as JSON.
        num_steps: How long it takes.
    """

    name: str
    seed: int
    action: str
    args: str
    num_steps: int

    def quality(self) -> float:
        """Train; NaN where it fails."""
        import torch

        torch.set_num_threads(1)
        scenario = catalogue()[self.name]
        treatment = Treatment(self.action, json.loads(self.args), num_steps=self.num_steps)
        session = Session(seed=self.seed, folder=Path(), knobs=treatment.knobs(), monitor=treatment)
        try:
            with treatment.functions():
                return float(scenario.train(session))
        except (ValueError, RuntimeError):  # a remedy may ask for what cannot be trained: a batch beyond the data
            return math.nan


def train_all(trainings: Iterable[Training], *, kept: Path, jobs: int) -> dict[Training, float]:
    """The qualities of trainings, those that are not in the file `kept` yet by training; they are added to it."""
    lines = kept.read_text().splitlines() if kept.exists() else []
    known = {Training(*row): float(quality) for *row, quality in map(json.loads, lines)}
    wanted = list(dict.fromkeys(trainings))
    missing = [training for training in wanted if training not in known]
    with concurrent.futures.ProcessPoolExecutor(jobs, multiprocessing.get_context("forkserver")) as pool:
        doing = {pool.submit(training.quality): training for training in missing}
        for done in concurrent.futures.as_completed(doing):
            training, quality = doing[done], done.result()
            known[training] = quality
            with kept.open("a") as file:
                file.write(json.dumps([*astuple(training), str(quality)]) + "\n")
    return {training: known[training] for training in wanted}


def reached(quality: float, *, twin: float, faulty: float, tolerance: float) -> bool:
    """Whether a repaired run is as good as its twin.

    Example:
        >>> reached(0.11, twin=0.1, faulty=2.0, tolerance=0.2), reached(0.5, twin=0.1, faulty=2.0, tolerance=0.2)
        (True, False)
    """
    gap = faulty - twin if math.isfinite(faulty) else 0.0
    return quality <= max(twin + tolerance * abs(twin), twin + GAP_LEFT * gap)


def prescribe(scenario: Scenario, run: Judgement) -> tuple[str, bool]:
    """Outcome, and whether it is right, where no training can tell; an outcome of "" where one is to be run."""
    if not run.action:
        return "no remedy" if run.codes else "no alarm", False
    if can_be_given(run.action, run.remedy_args) and (scenario.repairable or kind_of(scenario) == "api"):
        return "", False
    if run.action in scenario.cures:
        right = run.remedy_cause in run.right
        return ("what the twin does" if right else "for another mistake"), right
    return "not what helps here", False


def prove(folder: Path, rows: Sequence[dict[str, Any]], *, kept: Path, jobs: int) -> list[Repair]:
    """Try the first remedy of each faulty run of `rows` that can be repaired.

    Args:
        folder: Of the recorded runs.
        rows: What `run.py` wrote about them.
        kept: Where the qualities of trainings are kept.
        jobs: Processes that judge and train.
    """
    truth = catalogue()
    rows = [row for row in rows if row["name"] in truth and kind_of(truth[row["name"]])]
    faulty = [row for row in rows if not row["twin"]]
    runs = list(judge_all(folder, faulty, jobs=jobs))
    steps = {(row["name"], row["seed"]): int(row.get("steps", 1)) for row in faulty}
    qualities = {(row["name"], row["seed"], row["twin"]): float(row.get("quality", math.nan)) for row in rows}

    told = [prescribe(truth[run.name], run) for run in runs]
    trainings = [
        None if outcome else Training(run.name, run.seed, run.action, _json(run.remedy_args), steps[run.name, run.seed])
        for run, (outcome, _) in zip(runs, told, strict=True)
    ]
    trained = train_all([training for training in trainings if training is not None], kept=kept, jobs=jobs)
    repairs = []
    for run, (outcome, repaired), training in zip(runs, told, trainings, strict=True):
        bad, good = (qualities.get((run.name, run.seed, twin), math.nan) for twin in (False, True))
        quality = None
        if training is not None:
            quality = trained[training]
            # A first loss below the twin's quality is a number of another kind.
            ends = [end for end in (bad, run.first_loss or math.nan) if math.isfinite(end) and end > good]
            faulty_end, tolerance = min(ends, default=math.nan), truth[run.name].tolerance
            repaired = reached(quality, twin=good, faulty=faulty_end, tolerance=tolerance)
            outcome = "repaired" if repaired else "not repaired"
        repairs.append(
            Repair(
                name=run.name,
                seed=run.seed,
                cause=run.cause,
                kind=kind_of(truth[run.name]),
                named=run.remedy_cause,
                is_right=run.remedy_cause in run.right,
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


def _json(args: Mapping[str, Any]) -> str:
    return json.dumps(args, sort_keys=True)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def render(repairs: Sequence[Repair]) -> str:
    """The share of repaired runs by kind and by cause, and those that were not, a line each."""
    by_api = [repair for repair in repairs if repair.kind == "api"]
    by_hand = [repair for repair in repairs if repair.kind == "hand"]
    lines = ["| what | share | runs | goal |", "|---|---|---|---|"]
    for what, helped, goal in (
        ("repaired by the first remedy, carried out by the API", [r.repaired for r in by_api], "≥ 90%"),
        ("… of those where the cause was right", [r.repaired for r in by_api if r.is_right], ""),
        ("right advice for what a person has to repair", [r.repaired for r in by_hand], ""),
    ):
        if helped:
            lines.append(f"| {what} | {sum(helped) / len(helped):.1%} | {sum(helped)} of {len(helped)} | {goal} |")
    num_of, num_repaired = Counter(r.cause for r in by_api), Counter(r.cause for r in by_api if r.repaired)
    lines += ["", "| cause (by the API) | runs | repaired |", "|---|---|---|"]
    lines += [f"| {cause} | {num_of[cause]} | {num_repaired[cause]} |" for cause in sorted(num_of)]
    failed = [f"    {repair}" for repair in repairs if not repair.repaired]
    return "\n".join([*lines, *(["", "Not repaired:", "", *failed] if failed else [])])


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
    parser.add_argument("--kept", type=Path, metavar="FILE", help="of the trainings; FOLDER/treated.jsonl if left out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what became of each run there")
    options = parser.parse_args()
    rows = rows_of(options.folder, seeds=options.seeds, only=options.only)
    kept = options.kept or options.folder / "treated.jsonl"
    repairs = prove(options.folder, rows, kept=kept, jobs=options.jobs)
    print(render(repairs))
    if options.json:
        options.json.write_text(json.dumps([asdict(repair) for repair in repairs], indent=1) + "\n")


if __name__ == "__main__":
    main()
