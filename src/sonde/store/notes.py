"""What people say of a run: mutes, tags and notes, in `notes.jsonl` beside `run.json`.

A line an entry, oldest first; only ever appended to, by others than the recorder. What counts is what the last entries
say: a tag that was given and taken away is none.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sonde.core import strict_json
from sonde.core.errors import FormatError
from sonde.core.json_fields import member, text, whole
from sonde.core.strict_json import Json
from sonde.store import opening
from sonde.store.environment import redactor
from sonde.store.layout import IN_RUN, read_lines
from sonde.store.lines import Appender

NOTES = "notes.jsonl"
KINDS = ("mute", "unmute", "tag", "untag", "note")
MOST_BYTES = 4 << 20
"""A file that has more takes no further entry."""


class Mute(NamedTuple):
    """A rule whose findings are not counted as alarms: those that begin at a step, or all."""

    code: str
    first_step: int | None = None


@dataclass(frozen=True, kw_only=True)
class Notes:
    """What holds of a run by what people said last.

    Args:
        note: The text on the run; empty where there is none.
        tags: In the order in which they were given.
        mutes: Likewise.
        updated: When the last entry was made, UTC seconds; 0 where there is none.
    """

    note: str = ""
    tags: tuple[str, ...] = ()
    mutes: tuple[Mute, ...] = field(default=())
    updated: float = 0.0

    def is_muted(self, code: str, first_step: int) -> bool:
        """Whether a finding does not count."""
        return Mute(code) in self.mutes or Mute(code, first_step) in self.mutes

    def to_json(self) -> dict[str, Json]:
        """As plain data."""
        return {
            "note": self.note,
            "tags": list(self.tags),
            "mutes": [mute._asdict() for mute in self.mutes],
            "updated": self.updated,
        }


def append(
    run: Path, kind: str, *, text: str | None = None, code: str | None = None, first_step: int | None = None
) -> None:
    """Add an entry; secrets in it are hidden.

    Args:
        run: The run's folder.
        kind: One of `KINDS`.
        text: Of a tag or a note.
        code: Of the rule that is muted, or no longer.
        first_step: Of the one finding that is meant; all of the rule where None.

    Raises:
        OSError: it cannot be written.
        FormatError: the file is full.
    """
    entry: dict[str, Json] = {"kind": kind, "time": time.time()}
    told = {"text": text, "code": code, "first_step": first_step}
    entry |= {key: value for key, value in told.items() if value is not None}
    line = (strict_json.dumps(redactor().plain(entry)) + "\n").encode()
    path = run / NOTES
    opening.check(path, depth=IN_RUN)
    if path.exists() and path.stat().st_size + len(line) > MOST_BYTES:
        raise FormatError(f"{path} has {MOST_BYTES:,} bytes; delete old lines of it to add more.")
    file = Appender(path, depth=IN_RUN)
    try:
        file.queue(line)
        file.drain()
    finally:
        file.close()


def read(run: Path, problem: Callable[[str], None] | None = None) -> Notes:
    """What holds; `problem` is told of entries that are damaged, which are left out."""
    note, updated = "", 0.0
    tags: dict[str, None] = {}
    mutes: dict[Mute, None] = {}
    for line in read_lines(run / NOTES, depth=IN_RUN, problem=problem):
        try:
            kind, updated = member(line, "kind", text), member(line, "time", strict_json.to_number)
            if kind == "note":
                note = member(line, "text", text)
            elif kind == "tag":
                tags[member(line, "text", text)] = None
            elif kind == "untag":
                tags.pop(member(line, "text", text), None)
            elif kind == "mute":
                mutes[_mute(line)] = None
            elif kind == "unmute":
                mutes.pop(_mute(line), None)
        except FormatError as error:
            if problem is not None:
                problem(f"a note is damaged: {error}")
    return Notes(note=note, tags=tuple(tags), mutes=tuple(mutes), updated=updated)


def _mute(line: Json) -> Mute:
    first = line.get("first_step")
    return Mute(member(line, "code", text), None if first is None else member(line, "first_step", whole))
