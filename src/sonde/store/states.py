"""How a run stands: what `state.json` says, against what the lock says."""

import os
import time
from pathlib import Path
from typing import Any

from sonde.core import strict_json
from sonde.core.errors import FormatError
from sonde.core.records import Ending
from sonde.store import locks
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
