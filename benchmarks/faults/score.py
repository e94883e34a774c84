"""How right the diagnosis is: judges the runs that `run.py` recorded, by replay, against the truth.

Prints detection, right causes, false alarms, delays, warnings before divergence, calibration and a row for each cause.
Only what is on disk is read, so that runs recorded once can be judged again after the rules have changed.
"""

import argparse
import concurrent.futures
import fnmatch
import json
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.faults import table
from benchmarks.faults.judging import Judgement, judge
from benchmarks.faults.run import catalogue


def rows_of(folder: Path, *, seeds: str = "all", only: str = "*") -> list[dict[str, Any]]:
    """What `run.py` wrote about the runs that are there, the last word on each.

    Args:
        folder: Of the recorded runs.
        seeds: `odd` (test), `even` (tuning) or `all`.
        only: Patterns of names, as of a shell, with commas between.
    """
    rows: dict[tuple[str, int, bool], dict[str, Any]] = {}
    for line in (folder / "results.jsonl").read_text().splitlines():
        row = json.loads(line)
        rows[row["name"], row["seed"], row["twin"]] = row
    wanted = {"odd": (1,), "even": (0,), "all": (0, 1)}[seeds]
    patterns = only.split(",")
    return [
        row
        for (name, seed, _), row in sorted(rows.items())
        if seed % 2 in wanted and any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
    ]


def judge_all(folder: Path, rows: Sequence[dict[str, Any]], *, jobs: int) -> Iterator[Judgement]:
    """Judge runs, in `jobs` processes where that is more than one; in the order of `rows`."""
    truth = catalogue()
    asked = []
    for row in rows:
        kept = folder / row["name"] / f"{row['seed']}-{'twin' if row['twin'] else 'faulty'}"
        if row["name"] in truth and (kept / "run.json").exists():
            asked.append((truth[row["name"]], kept, row))
    if jobs == 1:
        yield from (judge(*one) for one in asked)
        return
    with concurrent.futures.ProcessPoolExecutor(jobs, multiprocessing.get_context("forkserver")) as pool:
        yield from pool.map(judge, *zip(*asked, strict=True), chunksize=4) if asked else ()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults.score", description=__doc__)
    parser.add_argument("folder", type=Path, help="where `python -m benchmarks.faults.run --out` recorded them")
    parser.add_argument("--seeds", choices=("odd", "even", "all"), default="all", help="odd: test; even: tuning")
    parser.add_argument("--only", default="*", help="pattern of names, as of a shell; several with commas")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes that judge")
    parser.add_argument("--list", action="store_true", help="also the runs that were judged wrongly")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures and runs there")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="write the reliability diagram there")
    options = parser.parse_args()
    rows = rows_of(options.folder, seeds=options.seeds, only=options.only)
    runs = list(judge_all(options.folder, rows, jobs=options.jobs))
    if options.list:
        print(table.listing(runs), end="\n\n")
    print(table.render(runs))
    if len(runs) < len(rows):
        print(f"\n{len(rows) - len(runs)} runs failed, are gone or belong to no scenario, and are not judged.")
    if options.json:
        options.json.write_text(json.dumps(table.to_json(runs), indent=1) + "\n")
    if options.svg:
        options.svg.write_text(table.diagram(table.calibration(runs)) + "\n")


if __name__ == "__main__":
    main()
