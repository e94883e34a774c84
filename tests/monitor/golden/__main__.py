"""The command: record golden rows, or compare with recorded ones."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from .rows import differences, record, shortened
from .trainings import TRAININGS


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 1 where anything differs, 2 where the folder does not hold what is to be compared."""
    parser = argparse.ArgumentParser(prog="python -m tests.monitor.golden", description=__doc__)
    parser.add_argument("command", choices=("record", "compare"))
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="holds a JSON file a training")
    parser.add_argument("trainings", nargs="*", metavar="TRAINING", help=f"all by default: {', '.join(TRAININGS)}")
    parser.add_argument("--all-lines", action="store_true", help="say all differences, however many")
    args = parser.parse_args(arguments)
    if unknown := [name for name in args.trainings if name not in TRAININGS]:
        parser.error(f"there is no training {', '.join(unknown)}; there are {', '.join(TRAININGS)}")
    names = args.trainings or list(TRAININGS)
    if args.command == "record":
        args.folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            rows = record(TRAININGS[name])
            (args.folder / f"{name}.json").write_text(json.dumps(rows))
            print(f"{name}: {len(rows['series'])} series, {len(rows['events'])} events", flush=True)
        return 0
    if absent := [name for name in names if not (args.folder / f"{name}.json").is_file()]:
        parser.error(f"{args.folder} holds nothing of {', '.join(absent)}: record them first, with the code before")
    num_different = 0
    for name in names:
        found = differences(json.loads((args.folder / f"{name}.json").read_text()), record(TRAININGS[name]))
        num_different += bool(found)
        print(f"{name}: {f'{len(found)} differences' if found else 'equal'}", flush=True)
        for line in found if args.all_lines else shortened(found):
            print(f"  {line}")
    print(f"{num_different} of {len(names)} trainings differ" if num_different else f"all {len(names)} are equal")
    return 1 if num_different else 0


if __name__ == "__main__":
    sys.exit(main())
