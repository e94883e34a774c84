"""Whether the first remedy of a diagnosis repairs a training of the space.

A case is a fault in a recipe: a few replicates that are clearly worse than their twins. The first replicate that the
diagnosis alarms on is taken, and the first remedy of its first alarm with its values, as a user would who believes it;
nothing of the truth is looked at. The faulty replicates are trained again with the remedy and with the fault still in
them (`treated`), and laid beside the faulty ones and the twins. Advice that only a person can follow is right where it
is given for a right cause; it is counted apart.

Cases are kept in FOLDER/remedies.jsonl, a line each. Where the diagnosis proposes something else than before, the case
is tried again, and its last line counts.
"""

import collections
import functools
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.faults.judging import Judgement
from benchmarks.faults.space import judged, keeping, treated, wild
from benchmarks.faults.space.effects import clearly_worse, wilson
from benchmarks.faults.space.labels import MARGIN, Label, Row, label_all, values
from benchmarks.faults.space.plan import TWINS, Piece
from benchmarks.faults.space.recipe import Training, from_json
from benchmarks.faults.space.training import of_the_space, train_one

FEWEST = 3
"""Replicates: with fewer nothing is clearly worse than three others."""

AGAIN, MOST_TIMES = frozenset({"raise-lr"}), 4
"""Actions whose text says: and again as long as that helps; how often that is done. Each is done in a new training."""

TRIED = ("repaired", "no effect", "worse", "failed")
ADVICE = ("right advice", "wrong advice", "no remedy")
UNTOLD = "no alarm"
"""The outcome of a case that the diagnosis no longer alarms on; it is counted nowhere."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What became of a case by its first remedy.

    Args:
        key: Of the faulty training whose diagnosis is followed.
        family: Of the training.
        seed: Of its recipe.
        fault: Its name.
        cause: The truth.
        named: The cause that the remedy is for.
        is_right: Whether that is a right one.
        code: Of the first alarm.
        action: Of the remedy, "" for none.
        args: Its values.
        times: How often the remedy was carried out on top of itself.
        outcome: One of `TRIED` where it was trained, otherwise of `ADVICE`, or `UNTOLD`.
        with_it: Qualities of the replicates with the remedy, or what else the fault harms.
        faulty: Those without it.
        twins: Those without the fault.
    """

    key: str
    family: str
    seed: int
    fault: str
    cause: str
    named: str
    is_right: bool
    code: str
    action: str
    args: dict[str, Any] = field(default_factory=dict)
    times: int = 1
    outcome: str = ""
    with_it: tuple[float, ...] = ()
    faulty: tuple[float, ...] = ()
    twins: tuple[float, ...] = ()

    @property
    def case(self) -> tuple[str, int, str]:
        """The same for all replicates."""
        return self.family, self.seed, self.fault

    @property
    def proposal(self) -> str:
        """What was proposed for which training, the same whenever it is proposed again."""
        return json.dumps([self.key, self.named, self.action, self.args], sort_keys=True)

    def __str__(self) -> str:
        args = ",".join(f"{name}={value}" for name, value in self.args.items() if name != "parameters")
        ends = " → ".join(f"{_middle(told):.3g}" for told in (self.faulty, self.with_it, self.twins) if told)
        return f"{self.outcome:13}{self.family:22}{self.seed:7} {self.fault:24}{self.code} {self.named:26}" + (
            f"{self.action or '-'}({args}){f' × {self.times}' if self.times > 1 else ''}  {ends}"
        )


def outcome(
    ours: Sequence[float], faulty: Sequence[float], twins: Sequence[float], *, margin: float, most: float = math.inf
) -> str:
    """`repaired`, `no effect` or `worse`, where lower numbers are better.

    Worse is what is clearly worse than the faulty trainings. Repaired is what regains at least half of the distance
    from their median to the twins', or is better than theirs and not clearly worse than the twins.

    Args:
        ours: Of the trainings with the remedy.
        faulty: Of those without it.
        twins: Of those without the fault.
        margin: Least difference that matters.
        most: Larger numbers count as it in distances: beyond the trivial predictor nothing is left to lose.

    Example:
        >>> twins, faulty = [0.1, 0.12, 0.11], [0.9, 0.8, float("nan")]
        >>> [outcome(ours, faulty, twins, margin=0.05) for ours in ([0.3, 0.2, 0.2], [0.85, 0.9, 0.8])]
        ['repaired', 'no effect']
    """
    if clearly_worse(ours, faulty, margin=margin):
        return "worse"
    mine, bad, good = (min(_middle(told), most) for told in (ours, faulty, twins))
    if not math.isfinite(bad):
        regained = math.isfinite(mine)
        return "repaired" if regained and not clearly_worse(ours, twins, margin=margin) else "no effect"
    if mine <= (bad + good) / 2 or (mine < bad and not clearly_worse(ours, twins, margin=margin)):
        return "repaired"
    return "no effect"


def _middle(told: Sequence[float]) -> float:
    return float(np.median([math.inf if math.isnan(value) else value for value in told]))


def try_all(
    folder: Path, *, families: Sequence[str], seeds: Sequence[int] | None, replicates: int, minutes: float
) -> Iterator[Trial]:
    """The trials of all cases that the diagnosis alarms on, those that are not kept yet by training.

    Args:
        folder: Of the recorded trainings, where trials are kept as well.
        families: Whose cases.
        seeds: Whose cases; None for all. Recipes that faults are put into count without `plan.TWINS`.
        replicates: So many of a case are trained again.
        minutes: No case begins after that.
    """
    if replicates < FEWEST:
        raise ValueError(f"`try_all(replicates=...)` must be {FEWEST} or more, got {replicates}.")
    ends, rows = time.monotonic() + 60 * minutes, keeping.read(folder)
    kept = read(folder)
    known = {trial.proposal: trial for trial in kept if trial.outcome != UNTOLD}
    last = {trial.case: trial for trial in kept}
    cases = collections.defaultdict[str, list[Label]](list)
    for label in label_all(rows):
        wanted = label.family in families and (seeds is None or label.seed % TWINS in seeds)
        if label.kind == "faulty" and wanted and not wild.is_wild(label.family):
            cases[rows[label.key]["group"]].append(label)
    for held in cases.values():
        if time.monotonic() > ends:
            return
        told = zip(held, judged.judge_all(folder, held, jobs=1), strict=True)
        trial = next((_proposed(label, run) for label, run in told if run.codes), None)
        before = last.get((held[0].family, held[0].seed, held[0].fault))
        if trial is not None:
            trial = known.get(trial.proposal) or _tried(trial, rows, folder, replicates=replicates)
        elif before is not None and before.outcome != UNTOLD:
            trial = replace(before, outcome=UNTOLD)
        if trial is not None and trial is not before:
            keeping.append_line(folder / "remedies.jsonl", asdict(trial))
        if trial is not None:
            yield trial


def _proposed(label: Label, run: Judgement) -> Trial:
    return Trial(
        key=label.key, family=label.family, seed=label.seed, fault=label.fault, cause=run.cause,
        named=run.remedy_cause, is_right=run.remedy_cause in run.right, code=run.codes[0], action=run.action,
        args=run.remedy_args,
    )  # fmt: skip


def _tried(trial: Trial, rows: Mapping[str, Row], folder: Path, *, replicates: int) -> Trial:
    if not trial.action:
        return replace(trial, outcome="no remedy")
    row = rows[trial.key]
    if treated.prescribed(from_json(row["recipe"]), trial.action, trial.args) is None:
        return replace(trial, outcome="right advice" if trial.is_right else "wrong advice")
    sick, twins = (
        [one for one in rows.values() if one["group"] == group and "error" not in one]
        for group in (row["group"], rows[row["twin"]]["group"])
    )
    what = wild.fault_named(trial.family, trial.fault).harms
    trial = replace(trial, faulty=tuple(values(sick, what)), twins=tuple(values(twins, what)))
    recipes = [from_json(one["recipe"]) for one in sick[:replicates]]
    found = _once(trial, recipes, what, folder)
    while found.outcome == "no effect" and trial.action in AGAIN and found.times < MOST_TIMES:
        more = _once(replace(trial, times=found.times + 1), recipes, what, folder)
        if not more.with_it or _middle(more.with_it) >= min(map(_middle, (found.with_it, trial.faulty))):
            break
        found = more
    return found


def _once(trial: Trial, recipes: Sequence[Training], what: str, folder: Path) -> Trial:
    again = [_trained(trial, recipe, folder) for recipe in recipes]
    if any("error" in one for one in again):
        return replace(trial, outcome="failed")
    ours, is_quality = tuple(values(again, what)), what in ("quality", "reported")
    margin, most = (MARGIN, 1.0) if is_quality else (0.25 * _middle(trial.twins), math.inf)
    return replace(trial, with_it=ours, outcome=outcome(ours, trial.faulty, trial.twins, margin=margin, most=most))


def _trained(trial: Trial, training: Training, folder: Path) -> dict[str, Any]:
    is_around = False
    for _ in range(trial.times):
        training, is_around = treated.prescribed(training, trial.action, trial.args) or (training, False)
    piece = Piece(training=training, role="remedy", watched=False, fault=trial.fault)
    around = functools.partial(treated.train, action=trial.action, args=trial.args)
    return train_one(piece, folder, train=around if is_around else of_the_space)


def read(folder: Path) -> list[Trial]:
    """All trials that were kept, in the order in which they were made."""
    path = folder / "remedies.jsonl"
    found = []
    for told in keeping.lines(path):
        numbers = {name: tuple(map(keeping.number, told[name])) for name in ("with_it", "faulty", "twins")}
        found.append(Trial(**{**told, **numbers}))
    return found


def table(trials: Sequence[Trial]) -> str:
    """By action and in all how many were tried and repaired, with 95% intervals; advice apart; then all else."""
    last = [trial for trial in {trial.case: trial for trial in trials}.values() if trial.outcome != UNTOLD]
    tried = [trial for trial in last if trial.outcome in TRIED]
    advised = [trial for trial in last if trial.outcome in ADVICE]
    lines = ["| first remedy | tried | " + " | ".join(TRIED) + " |", "|---" * (2 + len(TRIED)) + "|"]
    for name, held in (
        ("all", tried),
        ("… for a right cause", [trial for trial in tried if trial.is_right]),
        ("… for a wrong cause", [trial for trial in tried if not trial.is_right]),
        *_by_action(tried),
    ):
        counts = [sum(trial.outcome == kind for trial in held) for kind in TRIED]
        lines.append(f"| {name} | {len(held)} | {_share(counts[0], len(held))} | {' | '.join(map(str, counts[1:]))} |")
    lines += ["", "| advice that a person follows | given | right |", "|---|---|---|"]
    for name, held in (("all", advised), *_by_action(advised)):
        right = sum(trial.outcome == "right advice" for trial in held)
        lines.append(f"| {name} | {len(held)} | {_share(right, len(held))} |")
    rest = [trial for trial in last if trial.outcome not in ("repaired", "right advice")]
    rest.sort(key=lambda trial: (trial.outcome, trial.action, trial.named, trial.fault))
    return "\n".join([*lines, "", *(f"    {trial}" for trial in rest)])


def _by_action(trials: Sequence[Trial]) -> list[tuple[str, list[Trial]]]:
    actions = collections.Counter(trial.action for trial in trials)
    return [(name or "none", [one for one in trials if one.action == name]) for name, _ in actions.most_common()]


def _share(hits: int, num: int) -> str:
    low, high = wilson(hits, num)
    return f"{hits} ({hits / num:.0%}, {low:.0%}-{high:.0%})" if num else "-"
