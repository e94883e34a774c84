"""Labels from the counterfactual: what a training is, known by its twin, its replicates and other rates."""

import collections
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.faults.space import wild
from benchmarks.faults.space.axes.tasks.catalogue import TASKS
from benchmarks.faults.space.effects import clearly_worse, parting
from benchmarks.faults.space.keeping import number

MARGIN = 0.05
"""Of what the trivial predictor leaves to gain; less is no harm that anybody would look for."""

TWO_PLAYER_GOAL = 0.5

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Label:
    """What a recorded training is.

    Args:
        key: Of the training.
        family: Of the training.
        seed: Of its recipe.
        kind: `healthy`, `twin`, `faulty`, `harmless`, or `unclear` (a training without a fault that misses its goal,
            or does clearly better with another rate; a fault whose twin misses it).
        fault: Its name, "" for none.
        strength: Of the fault.
        onset: The step at which the fault begins to act.
        parts: The step from which on it is apart from its twin beyond seed noise; None for never.
        why: What made it `unclear`, "" otherwise.
    """

    key: str
    family: str
    seed: int
    kind: str
    fault: str = ""
    strength: float = 0.0
    onset: int = 0
    parts: int | None = None
    why: str = ""


def label_all(rows: Mapping[str, Row]) -> list[Label]:
    """The labels of all recorded trainings whose replicates, twins and rates are there."""
    groups = collections.defaultdict[str, list[Row]](list)
    rates = collections.defaultdict[str, list[str]](list)
    for row in rows.values():
        if "error" not in row:
            groups[row["group"]].append(row)
            if row["role"] == "rate" and row["twin"] in rows:
                rates[rows[row["twin"]]["group"]].append(row["group"])
    found = []
    for row in rows.values():
        if "error" in row or not row["watched"]:
            continue
        mine = groups[row["group"]]
        if row["role"] == "faulty":
            twin = rows.get(row["twin"])
            if twin is None or "error" in twin or len(mine) < 3:
                continue
            found.append(_faulty(row, mine, groups[twin["group"]]))
        elif len(mine) >= 3:
            others = [groups[name] for name in dict.fromkeys(rates[row["group"]])]
            if row["role"] == "healthy" and (len(others) < 2 or any(len(other) < 3 for other in others)):
                continue
            found.append(_sound(row, mine, others))
    return found


def goal(family: str) -> float:
    """The quality that a family's trainings are to reach."""
    if wild.is_wild(family):
        return wild.goal(family)
    task = family.split("/")[0]
    return TWO_PLAYER_GOAL if task == "two-player" else TASKS[task].goal


def values(rows: Sequence[Row], what: str) -> list[float]:
    """One number of each row."""
    return [number(row[what]) for row in rows]


def _sound(row: Row, mine: Sequence[Row], others: Sequence[Sequence[Row]]) -> Label:
    qualities, why = values(mine, "quality"), ""
    if not (number(row["quality"]) <= goal(row["family"]) and sorted(qualities)[len(mine) // 2] <= goal(row["family"])):
        why = "goal missed"
    for other in others:
        if not why and clearly_worse(qualities, values(other, "quality"), margin=MARGIN):
            why = f"rate × {other[0]['strength']:.2g} is better"
    kind = "unclear" if why else row["role"]
    return Label(key=row["key"], family=row["family"], seed=row["seed"], kind=kind, why=why)


def _faulty(row: Row, mine: Sequence[Row], twins: Sequence[Row]) -> Label:
    fault = wild.fault_named(row["family"], row["fault"])
    what, why = fault.harms, ""
    # Time and memory are watched in the unwatched replicates as well; a quarter more than the twin's is harm.
    theirs = values(twins, what)
    margin = MARGIN if what in ("quality", "reported") else 0.25 * sorted(theirs)[len(theirs) // 2] if theirs else 0.0
    if sorted(values(twins, "quality"))[len(twins) // 2] > goal(row["family"]):
        kind, why = "unclear", "the twin misses its goal"
    else:
        kind = "faulty" if clearly_worse(values(mine, what), theirs, margin=margin) else "harmless"
    courses, twin_courses = ([[number(x) for x in one["losses"]] for one in set_] for set_ in (mine, twins))
    return Label(
        key=row["key"], family=row["family"], seed=row["seed"], kind=kind, fault=fault.name, strength=row["strength"],
        onset=wild.onset_step(row["family"], fault.name, row["recipe"]), parts=parting(courses, twin_courses), why=why,
    )  # fmt: skip
