"""How right the diagnosis is: judges the runs that `run.py` made against the truth.

Usage: python -m benchmarks.faults.score FOLDER [--seeds odd|even|all] [--json FILE] [--list]
"""

import argparse
import collections
import heapq
import json
import math
from pathlib import Path
from typing import Any

from benchmarks.faults.run import catalogue

import sonde
from sonde.core.findings import Finding
from sonde.diagnosis.doctor import Doctor


def judge(folder: Path) -> tuple[tuple[Finding, ...], dict[str, int]]:
    """All findings of a run in their final order, and the step at which each was first told as an alarm."""
    run = sonde.load(folder)
    doctor, told = Doctor(), {}
    waiting = iter(sorted((e for e in run.events() if e.step is not None), key=lambda event: event.step))
    event = next(waiting, None)

    def note(found: Any, step: int) -> None:
        for finding in found:
            if finding.severity.is_alarm:
                told.setdefault(finding.code, step)

    last = 0
    for frame in heapq.merge(*run.frames(), key=lambda frame: frame.step):
        while event is not None and event.step < frame.step:
            doctor.event(event.kind, event.data)
            event = next(waiting, None)
        note(doctor.frame(frame), last)
        last = frame.step
    while event is not None:
        doctor.event(event.kind, event.data)
        event = next(waiting, None)
    note(doctor.settle(), last)
    return doctor.findings(), told


def causes_of(findings: tuple[Finding, ...]) -> list[str]:
    """The suspects of all alarms, the first alarm's first, each once."""
    alarms = [finding for finding in findings if finding.severity.is_alarm]
    firsts = [str(s.cause) for finding in alarms[:1] for s in finding.causes]
    others = [str(finding.causes[0].cause) for finding in alarms[1:] if finding.causes]
    return list(dict.fromkeys((*firsts, *others)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", choices=("odd", "even", "all"), default="all")
    parser.add_argument("--only", default="")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    truth = catalogue()
    rows = {}
    for line in (options.folder / "results.jsonl").read_text().splitlines():
        row = json.loads(line)
        rows[row["name"], row["seed"], row["twin"]] = row
    out = []
    for name, seed, twin in sorted(rows):
        if options.only not in name or (options.seeds != "all" and (seed % 2 == 1) != (options.seeds == "odd")):
            continue
        scenario = truth[name]
        run = options.folder / name / f"{seed}-{'twin' if twin else 'faulty'}"
        if not (run / "run.json").exists():
            continue
        findings, told = judge(run)
        alarms = [finding for finding in findings if finding.severity.is_alarm]
        causes = causes_of(findings)
        right = {scenario.cause, *scenario.also} - {None}
        out.append(
            {
                "name": name,
                "seed": seed,
                "kind": "healthy" if scenario.cause is None else "twin" if twin else "faulty",
                "cause": scenario.cause,
                "hard": scenario.hard,
                "codes": [finding.code for finding in alarms],
                "info": [finding.code for finding in findings if not finding.severity.is_alarm],
                "causes": causes[:4],
                "confidence": alarms[0].causes[0].confidence if alarms and alarms[0].causes else math.nan,
                "first": bool(causes and causes[0] in right),
                "second": bool(set(causes[:2]) & right),
                "delay": min((max(0, step - scenario.onset) for step in told.values()), default=None),
            }
        )
    report(out, listing=options.list)
    if options.json:
        options.json.write_text("\n".join(json.dumps(row) for row in out) + "\n")


def report(out: list[dict[str, Any]], *, listing: bool) -> None:
    faulty = [row for row in out if row["kind"] == "faulty"]
    if listing:
        for row in out:
            bad = (row["kind"] == "faulty" and not row["first"]) or (row["kind"] != "faulty" and row["codes"])
            if bad:
                alarms, causes = ",".join(row["codes"]) or "-", ",".join(row["causes"][:2]) or "-"
                print(
                    f"{row['kind']:8}{row['name']:42}{row['seed']:3} {row['cause'] or '-':24} {alarms:30} {causes:40}"
                )
    print("| what | share | of |\n|---|---|---|")

    def line(what: str, some: list[dict[str, Any]], hit: Any) -> None:
        if some:
            print(f"| {what} | {sum(map(bool, map(hit, some))) / len(some):.1%} | {len(some)} |")

    line("faults detected", faulty, lambda row: row["codes"])
    line("right cause first", faulty, lambda row: row["first"])
    line("right cause in the first two", faulty, lambda row: row["second"])
    line("alarms on healthy runs", [r for r in out if r["kind"] == "healthy"], lambda row: row["codes"])
    line("alarms on repaired twins", [r for r in out if r["kind"] == "twin"], lambda row: row["codes"])
    delays = sorted(row["delay"] for row in faulty if row["delay"] is not None)
    if delays:
        print(f"\nmedian delay {delays[len(delays) // 2]} steps, 90% within {delays[int(0.9 * len(delays))]}")
    hard = [row for row in faulty if row["hard"]]
    line("hard faults found within 5 steps", hard, lambda row: row["delay"] is not None and row["delay"] <= 5)
    print("\nconfidence of the first cause → how often it was right")
    bins = collections.defaultdict(list)
    for row in faulty:
        if not math.isnan(row["confidence"]):
            bins[min(9, int(10 * row["confidence"]))].append(row["first"])
    for place in sorted(bins):
        share = sum(bins[place]) / len(bins[place])
        print(f"  {place / 10:.1f}-{place / 10 + 0.1:.1f}: {share:.0%} of {len(bins[place])}")
    false = collections.Counter(code for row in out if row["kind"] != "faulty" for code in row["codes"])
    if false:
        print("\nalarms where there should be none:", dict(false.most_common()))


if __name__ == "__main__":
    main()
