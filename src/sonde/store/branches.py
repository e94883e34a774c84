"""The lines of steps of a run, from `branches.jsonl`."""

from collections.abc import Sequence
from pathlib import Path

from sonde.core import strict_json
from sonde.core.records import Branch
from sonde.store.layout import BRANCHES, read_lines
from sonde.store.table_reader import WHOLE, Stretch

ROOT = Branch(number=0, parent=None, fork_step=0)


def encode(branch: Branch) -> bytes:
    """A branch as a line."""
    line = {"number": branch.number, "parent": branch.parent, "fork_step": branch.fork_step}
    return (strict_json.dumps(line) + "\n").encode()


def read(run: Path) -> list[Branch]:
    """All branches, the root first, the current one last."""
    found = [ROOT]
    for line in read_lines(run / BRANCHES):
        try:
            branch = Branch(int(line["number"]), int(line["parent"]), int(line["fork_step"]))
        except (KeyError, TypeError, ValueError):
            continue
        if branch.number == len(found) and branch.parent is not None and 0 <= branch.parent < len(found):
            found.append(branch)
    return found


def line(branches: Sequence[Branch], number: int) -> tuple[Stretch, ...]:
    """The stretches that lead to a branch's end, oldest first.

    Example:
        >>> [stretch.end_step for stretch in line([ROOT, Branch(1, 0, 500)], 1)][0]
        500
    """
    stretches: list[Stretch] = []
    at: int | None = number
    end = WHOLE[0].end_step
    while at is not None:
        stretches.append(Stretch(at, end))
        # A grandchild may fork before its parent did: nothing behind the earliest fork counts.
        end = min(end, branches[at].fork_step)
        at = branches[at].parent
    return tuple(reversed(stretches))
