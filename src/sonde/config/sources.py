"""Where settings come from: files, the environment."""

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sonde.alerts.config import ENVIRONMENT as OF_ALERTS
from sonde.core.errors import FormatError, SettingError
from sonde.core.settings import Word

OWN_FILE, PROJECT_FILE = "sonde.toml", "pyproject.toml"
FILE_VARIABLE = "SONDE_CONFIG"

ENVIRONMENT: Mapping[str, str] = {
    "SONDE_PRESET": "preset",
    "SONDE_RUNS": "runs",
    "SONDE_BUDGET": "budget",
    "SONDE_CONSOLE": "console",
    "SONDE_DOCTOR": "doctor",
    "SONDE_PROFILE": "profile",
    "SONDE_CADENCE": "cadence",
    "SONDE_RULES": "rules",
    "SONDE_SINKS": "sinks",
    **OF_ALERTS,
}
"""Variables and the settings that they stand for."""

_PREFIX = "SONDE_"
_OTHERS = ("SONDE_RUN", FILE_VARIABLE)
_TYPO = 0.7  # less alike, a variable is somebody else's


class Source(NamedTuple):
    """Some settings, and where they are from."""

    name: str
    """In short, such as "sonde.toml"."""
    path: str
    """In full, for messages."""
    table: Mapping[str, Any]


def files(folder: Path, environment: Mapping[str, str]) -> list[Source]:
    """The files that hold for a working directory, the one that goes first at the end.

    They are those of the nearest folder, from this one upwards, that has a `sonde.toml` or a `pyproject.toml`, no
    further than the repository or the home folder; or the one file that `SONDE_CONFIG` names; `off` is none.

    Raises:
        FormatError: a file cannot be read, or is not TOML.
    """
    named = environment.get(FILE_VARIABLE, "").strip()
    if named.lower() == "off":
        return []
    if named:
        path = folder / named
        return [_project(path) if path.name == PROJECT_FILE else _own(path)]
    for place in (folder, *folder.parents):
        found = [
            read(place / name)
            for name, read in ((PROJECT_FILE, _project), (OWN_FILE, _own))
            if os.path.isfile(place / name)  # noqa: PTH113  # never raises, whatever may be entered
        ]
        if found:
            return [source for source in found if source.table]
        if os.path.exists(place / ".git") or place == _home():
            break
    return []


def variables(environment: Mapping[str, str]) -> list[Source]:
    """What the environment says, a source for each variable; empty ones say nothing.

    Raises:
        SettingError: a variable looks like one of ours and is none.
    """
    found = []
    for variable, value in environment.items():
        if not variable.startswith(_PREFIX) or not value.strip() or variable in _OTHERS:
            continue
        if variable in ENVIRONMENT:
            found.append(Source(variable, f"{variable} in the environment", _nested(ENVIRONMENT[variable], value)))
        elif near := _nearest(variable):
            raise SettingError(f"there is no variable {variable}; did you mean {near}?")
    return found


def _nearest(variable: str) -> str:
    known = [name.removeprefix(_PREFIX) for name in (*ENVIRONMENT, *_OTHERS)]
    near = difflib.get_close_matches(variable.removeprefix(_PREFIX), known, n=1, cutoff=_TYPO)
    return _PREFIX + near[0] if near else ""


def _nested(key: str, value: str) -> dict[str, Any]:
    table: Any = Word(value)
    for name in reversed(key.split(".")):
        table = {name: table}
    return dict(table)


def _own(path: Path) -> Source:
    return Source(path.name, str(path), _toml(path))


def _project(path: Path) -> Source:
    try:
        table = _toml(path).get("tool", {}).get("sonde", {})
    except FormatError:
        # Somebody else's trouble, unless it is about us.
        if "[tool.sonde" in path.read_text(encoding="utf-8", errors="replace"):
            raise
        table = {}
    if not isinstance(table, Mapping):
        raise FormatError(f"{path}: [tool.sonde] must be a table")
    return Source(path.name, f"{path} [tool.sonde]", table)


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FormatError(f"{path} is not TOML: {error}") from error
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror}") from error


def _home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:  # a container without a home
        return None
