"""Train kinds that the space of trainings does not have, in pieces that resume.

train: trains what FOLDER does not hold yet, until --minutes are over. The rest is `python -m benchmarks.faults.space
label|judge|table --out FOLDER`.
"""

import argparse
import multiprocessing
from collections.abc import Iterator
from pathlib import Path

import benchmarks.faults.wild.kinds  # noqa: F401
from benchmarks.faults.space import keeping
from benchmarks.faults.space.__main__ import seeds_of
from benchmarks.faults.space.plan import Piece
from benchmarks.faults.space.training import train_all
from benchmarks.faults.wild.case import pieces
from benchmarks.faults.wild.kind import KINDS
from benchmarks.faults.wild.training import train


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults.wild", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("verb", choices=("train",))
    parser.add_argument("--kinds", default="all", help="names with commas, or `all`; default all")
    parser.add_argument("--seeds", default="0", help="such as 3, 0-9 or 1,4; default 0")
    parser.add_argument("--out", type=Path, default=Path("runs/wild"), metavar="FOLDER")
    parser.add_argument("--minutes", type=float, default=1e9, help="no training begins after that")
    options = parser.parse_args()
    preload = ["torch._dynamo", "benchmarks.faults.wild.training", "sonde.monitor.watch"]
    multiprocessing.get_context("forkserver").set_forkserver_preload(preload)
    num = train_all(_wanted(options), options.out, minutes=options.minutes, train=train)
    print(f"{num} trained, {len(keeping.read(options.out))} in {options.out}")


def _wanted(options: argparse.Namespace) -> Iterator[Piece]:
    kinds = list(KINDS) if options.kinds == "all" else options.kinds.split(",")
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise SystemExit(f"no such kinds: {', '.join(unknown)}; there are {', '.join(KINDS)}")
    for seed in seeds_of(options.seeds):
        for kind in kinds:
            yield from pieces(kind, seed)


if __name__ == "__main__":
    main()
