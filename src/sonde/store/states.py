"""How a run stands: what `state.json` says, against what the lock says."""

import os
import time
from pathlib import Path
from typing import Any

from sonde.core import strict_json
from sonde.core.errors import FormatError, RunBusy
from sonde.core.records import Ending
from sonde.store import layout, locks
from sonde.store.layout import STATE

# Where the file system has no locks, or the run lies on another machine's disk, a run that was not updated for this
# long has died.
_SILENCE_S = 30.0


_KINDS = {"steps": int, "findings": int, "updated": int | float, "dropped": dict}


def read(run: Path) -> dict[str, Any]:
    """`state.json`, empty where it is not there or damaged; without fields that are not what they should be."""
    try:
        state = strict_json.loads((run / STATE).read_bytes())
    except (OSError, FormatError):
        return {}
    if not isinstance(state, dict):
        return {}
    state = {key: value for key, value in state.items() if isinstance(value, _KINDS.get(key, object))}
    try:
        state["loss"] = strict_json.to_number(state["loss"])
    except (KeyError, FormatError):
        state["loss"] = None
    return state


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
        updated = state.get("updated")
        held = isinstance(updated, int | float) and time.time() - updated < _SILENCE_S
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
