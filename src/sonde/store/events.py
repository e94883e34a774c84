"""The events of a run, from `events.jsonl`."""

from collections.abc import Callable
from pathlib import Path

from sonde.core.errors import FormatError
from sonde.core.json_fields import known, mapping, member, text, whole
from sonde.core.records import Event
from sonde.core.strict_json import to_number
from sonde.store.layout import EVENTS, IN_RUN, read_lines

_MEMBERS = {"time": to_number, "step": lambda value: None if value is None else whole(value), "data": mapping}


def read(run: Path, problem: Callable[[str], None] = lambda _: None) -> list[Event]:
    """Everything that happened, in order; `problem` is told of events that are damaged, which are left out."""
    found = []
    for line in read_lines(run / EVENTS, depth=IN_RUN, problem=problem):
        try:
            said = known(line, _MEMBERS, problem)
            kind = member(said, "kind", text)
        except FormatError as error:
            problem(f"an event is damaged: {error}")
            continue
        found.append(Event(kind, said.get("time") or 0.0, said.get("step"), said.get("data") or {}))
    return found
