"""Train, label, judge and tabulate the space of trainings, in pieces that resume.

train: draws and trains, until --minutes are over; again, it goes on with what is missing.
label: writes FOLDER/labels.jsonl from what is trained.
judge: writes FOLDER/judged.jsonl by replaying the recorded rows; trains nothing.
remedy: tries the first remedy of each faulty training that the diagnosis alarms on, until --minutes are over; adds to
    FOLDER/remedies.jsonl, where it goes on again.
table: prints the figures of judged.jsonl and of remedies.jsonl, as far as they are there.
precision: counts which rules' alarms were right in FOLDER..., and writes src/sonde/rules/alarm_precision.py anew. Where
    some rules are preview by it, judge with --all-stable first: what they only inform of now counts as alarms there.
"""

import argparse
import collections
import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from benchmarks.faults.space import families, judged, keeping, precision, remedies
from benchmarks.faults.space.labels import Label, label_all
from benchmarks.faults.space.plan import Piece, pieces
from benchmarks.faults.space.training import train_all
from benchmarks.faults.space.wild import is_wild


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults.space", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("verb", choices=("train", "label", "judge", "remedy", "table", "precision"))
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="for precision; default --out")
    parser.add_argument("--families", default="tuning", help="names with commas, `tuning`, `put-aside` or `all`")
    parser.add_argument("--seeds", help="such as 3, 0-9 or 1,4; default 0-9 to train, all that are there for remedies")
    parser.add_argument("--out", type=Path, default=Path("runs/space"), metavar="FOLDER")
    parser.add_argument(
        "--minutes", type=float, default=1e9, help="no training, or case of `remedy`, begins after that"
    )
    parser.add_argument("--replicates", type=int, default=3, help="seeds that labels, or remedies, rest on; default 3")
    parser.add_argument("--faults", type=int, default=4, help="faults drawn for a recipe; default 4")
    parser.add_argument("--jobs", type=int, default=1, help="processes that judge")
    parser.add_argument("--put-aside", action="store_true", help="judge families that are put aside; logged")
    parser.add_argument("--all-stable", action="store_true", help="judge as if no rule were preview, for precision")
    options = parser.parse_args()
    if options.folders and options.verb != "precision":
        parser.error(f"{options.verb} takes its folder by --out")
    verbs = {"train": _train, "label": _label, "judge": _judge, "remedy": _remedy, "table": _table,
             "precision": _precision}  # fmt: skip
    verbs[options.verb](options)


def _train(options: argparse.Namespace) -> None:
    num = train_all(_wanted(options), options.out, minutes=options.minutes)
    print(f"{num} trained, {len(keeping.read(options.out))} in {options.out}")


def _wanted(options: argparse.Namespace) -> Iterator[Piece]:
    for seed in seeds_of(options.seeds or "0-9"):
        for family in _families(options.families):
            yield from pieces(family, seed, replicates=options.replicates, num_faults=options.faults)


def _label(options: argparse.Namespace) -> None:
    labels = label_all(keeping.read(options.out))
    (options.out / "labels.jsonl").write_text("".join(json.dumps(asdict(label)) + "\n" for label in labels))
    for kind, num in collections.Counter(label.kind for label in labels).most_common():
        print(f"{kind}: {num}")


def _judge(options: argparse.Namespace) -> None:
    wanted = set(_families(options.families))
    judged.allow(sorted(wanted), put_aside=options.put_aside)
    lines = (options.out / "labels.jsonl").read_text().splitlines()
    told = [Label(**json.loads(line)) for line in lines]
    labels = [label for label in told if label.family in wanted or is_wild(label.family)]
    began = time.perf_counter()
    profile = precision.all_stable() if options.all_stable else None
    runs = list(judged.judge_all(options.out, labels, jobs=options.jobs, profile=profile))
    judged.write(precision.judged_file(options.out) if options.all_stable else options.out / "judged.jsonl", runs)
    print(f"{len(runs)} judged, {(time.perf_counter() - began) / max(1, len(runs)):.3f} s each")


def _remedy(options: argparse.Namespace) -> None:
    wanted = _families(options.families)
    judged.allow(wanted, put_aside=options.put_aside)
    seeds = seeds_of(options.seeds) if options.seeds else None
    trials = remedies.try_all(
        options.out, families=wanted, seeds=seeds, replicates=options.replicates, minutes=options.minutes
    )
    for trial in trials:
        print(trial, flush=True)
    print(remedies.table(remedies.read(options.out)))


def _table(options: argparse.Namespace) -> None:
    if (path := options.out / "judged.jsonl").exists():
        print(judged.table(judged.read(path)))
    if trials := remedies.read(options.out):
        print(remedies.table(trials))


def _precision(options: argparse.Namespace) -> None:
    files = [precision.judged_file(folder) for folder in options.folders or [options.out]]
    if missing := [str(file) for file in files if not file.exists()]:
        raise SystemExit(f"{', '.join(missing)}: missing; run `judge --all-stable` for that folder first")
    runs = [run for file in files for run in judged.read(file)]
    judged.allow(sorted({run.name for run in runs}), put_aside=options.put_aside)
    counts = precision.counted(runs)
    precision.FILE.write_text(precision.text(counts), encoding="utf-8")
    for code, (right, num) in counts.items():
        print(f"{code}  {right} of {num} alarms right")
    print(f"written to {precision.FILE}")


def _families(told: str) -> list[str]:
    known = {"tuning": families.TUNING, "put-aside": families.PUT_ASIDE, "all": families.FAMILIES}
    found = list(known.get(told) or told.split(","))
    unknown = [family for family in found if family not in families.FAMILIES]
    if unknown:
        raise SystemExit(f"no such families: {', '.join(unknown)}; there are {', '.join(families.FAMILIES)}")
    return found


def seeds_of(told: str) -> list[int]:
    """Seeds as they are told on the command line."""
    found = []
    for part in told.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


if __name__ == "__main__":
    main()
