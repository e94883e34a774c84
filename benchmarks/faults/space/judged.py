"""Judge recorded trainings again by replay, without training, and count what was said."""

import collections
import concurrent.futures
import datetime
import json
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.faults.judging import Alarm, Judgement, judge
from benchmarks.faults.scenario import Scenario
from benchmarks.faults.space import keeping
from benchmarks.faults.space.effects import wilson
from benchmarks.faults.space.families import is_put_aside
from benchmarks.faults.space.labels import Label
from benchmarks.faults.space.wild import fault_named

LOG = Path(__file__).parent / "put_aside.log"
"""A line for each judging of the families that are put aside; committed."""


class PutAside(ValueError):
    """Families were to be judged that nothing may be looked at of."""


def allow(families: Sequence[str], *, put_aside: bool, log: Path = LOG) -> None:
    """Refuse families that are put aside, or note that they are looked at now."""
    held = sorted({family for family in families if is_put_aside(family)})
    if held and not put_aside:
        raise PutAside(f"{', '.join(held)} are put aside: leave them out, or add --put-aside, which is logged.")
    if held:
        with log.open("a") as lines:
            lines.write(f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} judged {' '.join(held)}\n")


def judge_all(
    folder: Path, labels: Sequence[Label], *, jobs: int, profile: Mapping[str, object] | None = None
) -> Iterator[Judgement]:
    """Judge the runs of these labels, in their order; those that are `unclear` are left out.

    Args:
        folder: Of the trainings.
        labels: What they are.
        jobs: Processes that judge.
        profile: Settings of rules that are not as a user would have them.
    """
    asked = [label for label in labels if label.kind != "unclear"]
    if jobs == 1:
        yield from (_judge(folder, label, profile) for label in asked)
        return
    with concurrent.futures.ProcessPoolExecutor(jobs, multiprocessing.get_context("forkserver")) as pool:
        yield from pool.map(_judge, [folder] * len(asked), asked, [profile] * len(asked), chunksize=8)


def _judge(folder: Path, label: Label, profile: Mapping[str, object] | None) -> Judgement:
    fault = fault_named(label.family, label.fault)
    scenario = Scenario(
        label.family, fault.cause if fault else None, lambda session: 0.0, fault.also if fault else (),
        onset=label.onset, hard=bool(fault and fault.hard),
    )  # fmt: skip
    with keeping.unpacked(folder, label.key) as run:
        found = judge(scenario, run, {"seed": label.seed, "twin": label.kind == "twin"}, profile=profile)
    return replace(found, kind=label.kind, harm=label.parts)


def write(path: Path, runs: Sequence[Judgement]) -> None:
    """A line for each judgement."""
    path.write_text("".join(json.dumps(asdict(run)) + "\n" for run in runs))


def read(path: Path) -> list[Judgement]:
    """What `write` wrote."""
    found = []
    for line in path.read_text().splitlines():
        told: dict[str, Any] = json.loads(line)
        told["alarms"] = tuple(Alarm(**alarm) for alarm in told["alarms"])
        for name in ("also", "codes", "infos", "causes"):
            told[name] = tuple(told[name])
        found.append(Judgement(**told))
    return found


COLUMNS: dict[str, tuple[str, Callable[[Judgement], bool]]] = {
    "detected": ("faulty", lambda run: run.detected),
    "cause first": ("faulty", lambda run: run.first),
    "first two": ("faulty", lambda run: run.second),
    "healthy alarmed": ("healthy", lambda run: bool(run.codes)),
    "twins alarmed": ("twin", lambda run: bool(run.codes)),
    "harmless alarmed": ("harmless", lambda run: bool(run.codes)),
}


def table(runs: Sequence[Judgement]) -> str:
    """Shares with 95% intervals, over all and by family; then by cause, and which rules alarm without a fault."""
    families = sorted({run.name for run in runs})
    lines = ["| family | " + " | ".join(COLUMNS) + " |", "|---" * (1 + len(COLUMNS)) + "|"]
    for family in ("all", *families):
        held = [run for run in runs if family in ("all", run.name)]
        cells = [_cell([hit(run) for run in held if run.kind == kind]) for kind, hit in COLUMNS.values()]
        lines.append(f"| {family} | " + " | ".join(cells) + " |")
    lines += ["", "| cause | faulty | detected | first | first two | named instead |", "|---|---|---|---|---|---|"]
    causes = collections.defaultdict[str, list[Judgement]](list)
    for run in runs:
        if run.kind == "faulty":
            causes[run.cause].append(run)
    for cause, held in sorted(causes.items()):
        wrong = collections.Counter(run.causes[0] if run.causes else "-" for run in held if not run.first)
        named = ", ".join(f"{name} {num}" for name, num in wrong.most_common(3))
        counts = [sum(hit(run) for run in held) for _, hit in list(COLUMNS.values())[:3]]
        lines.append(f"| {cause} | {len(held)} | " + " | ".join(map(str, counts)) + f" | {named} |")
    for kind in ("healthy", "twin", "harmless"):
        told = collections.Counter(code for run in runs if run.kind == kind for code in set(run.codes))
        if told:
            lines += [
                "",
                f"Rules that alarm on {kind}: " + ", ".join(f"{code} {num}" for code, num in told.most_common()),
            ]
    return "\n".join(lines)


def _cell(hits: Sequence[bool]) -> str:
    if not hits:
        return "-"
    low, high = wilson(sum(hits), len(hits))
    return f"{sum(hits) / len(hits):.0%} ({sum(hits)}/{len(hits)}, {low:.0%}-{high:.0%})"
