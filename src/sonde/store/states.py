"""How a run stands: what `state.json` says, against what the lock says."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sonde.core import strict_json
from sonde.core.errors import FormatError, RunBusy
from sonde.core.json_fields import count, known, mapping, moment, text
from sonde.core.records import Ending
from sonde.core.strict_json import to_number
from sonde.store import layout, locks, opening
from sonde.store.layout import IN_RUN, STATE

# Where the file system has no locks, or the run lies on another machine's disk, a run that was not updated for this
# long has died.
_SILENCE_S = 30.0
_AHEAD_S = 600.0  # by which the clock of another machine may be ahead of ours
_STATE_BYTES = 4 << 20

_MEMBERS = {
    "ending": text,
    "reason": text,
    "host": text,
    "steps": count,
    "findings": count,
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
    held = locks.is_held(run)
    if held is None or (not held and state.get("host", os.uname().nodename) != os.uname().nodename):
        held = -_AHEAD_S < time.time() - state.get("updated", 0.0) < _SILENCE_S
    return Ending.LIVE if held else Ending.DIED


def conclude(run: Path, process: int, ending: Ending, reason: str) -> bool:
    """Say how a run ended whose process is gone; whether that was still to be said.

    The process may have said it itself, and another may have gone on with the run: then it is left alone.
    """
    if not _is_open(read(run), process):
        return False
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
    return said == (Ending.LIVE, process, os.uname().nodename)
