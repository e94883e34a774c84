"""How a run stands: what `state.json` says, and whether the process that wrote it is still there."""

import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sonde.core import strict_json
from sonde.core.errors import FormatError, RunBusy
from sonde.core.json_fields import count, known, mapping, moment, text, whole
from sonde.core.records import Ending
from sonde.core.strict_json import to_number
from sonde.store import endings, layout, opening, processes
from sonde.store.layout import IN_RUN, STATE

# A run that another machine records, and that was not updated for this long, has died.
_SILENCE_S = 30.0
_AHEAD_S = 600.0  # by which the clock of another machine may be ahead of ours
_STATE_BYTES = 4 << 20

_MEMBERS = {
    "ending": text,
    "reason": text,
    "host": text,
    "process": whole,
    "space": lambda value: None if value is None else text(value),
    "steps": count,
    "findings": count,
    "severities": lambda value: {name: count(number) for name, number in mapping(value).items()},
    "updated": moment,
    "loss": lambda value: None if value is None else to_number(value),
    "dropped": lambda value: {name: count(rows) for name, rows in mapping(value).items()},
}


def read(run: Path, problem: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """`state.json`, empty where it is not there or damaged; without members that are not what they should be.

    Args:
        run: The run's folder.
        problem: Told what cannot be read, and why.
    """
    try:
        said = strict_json.loads(opening.read_bytes(run / STATE, depth=IN_RUN, limit=_STATE_BYTES))
        state = known(said, _MEMBERS, problem)
    except FileNotFoundError:
        state = {}
    except (OSError, FormatError) as error:
        problem(getattr(error, "strerror", None) or str(error))
        state = {}
    return {"loss": None, **state}


def ending(run: Path, state: dict[str, Any]) -> Ending:
    """How the run stands now."""
    try:
        said = Ending(str(state.get("ending", Ending.LIVE)))
    except ValueError:
        said = Ending.LIVE
    if said is not Ending.LIVE:
        return said
    return Ending.LIVE if _is_recorded(run, state) else Ending.DIED


def _is_recorded(run: Path, state: dict[str, Any]) -> bool:
    """Whether the process that records is still there. No lock is asked: that takes one, if for an instant."""
    updated, process = state.get("updated", 0.0), state.get("process")
    age_s = time.time() - updated
    is_fresh = bool(-_AHEAD_S < age_s < _SILENCE_S)
    here = processes.here()
    # What another machine or container records is known by its heartbeat alone.
    if state.get("host") != here["host"] or state.get("space", here["space"]) != here["space"]:
        return is_fresh
    if process == here["process"]:
        where = run.resolve()
        return any(getattr(one, "location", None) == where for one in endings.watched())
    return isinstance(process, int) and processes.is_alive(process, before=updated)


def conclude(run: Path, process: int, ending: Ending, reason: str) -> bool:
    """Say how a run ended whose process is gone; whether that was still to be said.

    The process may have said it itself, and another may have gone on with the run: then it is left alone.
    """
    if not _is_open(read(run), process):
        return False
    from sonde.store import locks  # only who writes needs one

    try:
        lock = locks.acquire(run)
    except (RunBusy, OSError):
        return False
    try:
        state = read(run)
        if not _is_open(state, process):
            return False
        layout.replace_json(run / STATE, {**state, "ending": ending, "reason": reason})
    except OSError:
        return False
    finally:
        os.close(lock)
    return True


def _is_open(state: dict[str, Any], process: int) -> bool:
    said = state.get("ending"), state.get("process"), state.get("host")
    return said == (Ending.LIVE, process, platform.node())
