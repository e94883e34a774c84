"""The lines of steps of a run, from `branches.jsonl`."""

from collections.abc import Callable, Sequence
from pathlib import Path

from sonde.core import strict_json
from sonde.core.errors import FormatError
from sonde.core.json_fields import member, whole
from sonde.core.records import Branch
from sonde.store.layout import BRANCHES, IN_RUN, read_lines
from sonde.store.table_reader import WHOLE, Stretch

ROOT = Branch(number=0, parent=None, fork_step=0)


def encode(branch: Branch) -> bytes:
    """A branch as a line."""
    line = {"number": branch.number, "parent": branch.parent, "fork_step": branch.fork_step}
    return (strict_json.dumps(line) + "\n").encode()


def read(run: Path, problem: Callable[[str], None] | None = None) -> list[Branch]:
    """All branches, the root first, the current one last; `problem` is told of a file that cannot be read."""
    found = [ROOT]
    for line in read_lines(run / BRANCHES, depth=IN_RUN, problem=problem):
        try:
            branch = Branch(*(member(line, key, whole) for key in ("number", "parent", "fork_step")))
        except FormatError:
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
