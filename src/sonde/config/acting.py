"""Which settings send, write or act. From a file that came with a project they hold only where the user trusts it."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sonde.config.schema import Config
from sonde.core import settings

_KNOWN = frozenset(item.name for item in dataclasses.fields(Config))
# The others need trust, also those that come with later versions.
_HARMLESS = frozenset(
    {"preset", "budget", "floor_s", "console", "console_s", "total_steps", "total_epochs", "doctor"}
    | {"cadence", "probes", "loss", "rules"}
)
_PATHS = frozenset({"runs", "profile"})


def acting(table: Mapping[str, Any], *, project: Path, folder: Path) -> list[str]:
    """The keys of a project's settings that need trust.

    They are channels of alerts, sinks, and paths that lead out of the project, by links as well; when and what is told
    (`alerts.severity`) does not send by itself. A key that no setting has is not among them: it is refused later.

    Args:
        table: The settings.
        project: Folder of the file.
        folder: The working directory, to which paths are relative.
    """
    return [key for key, value in settings.flat(table) if _acts(key, value, project, folder)]


def _acts(key: str, value: Any, project: Path, folder: Path) -> bool:
    name, _, rest = key.partition(".")
    if name == "alerts":
        return bool(rest) and rest.partition(".")[0] in _channels()
    if name in _PATHS:
        return isinstance(value, str) and _leads_out(folder / value, project)
    return name in _KNOWN and name not in _HARMLESS


def _channels() -> tuple[str, ...]:
    from sonde.alerts.channels.catalogue import DOOR

    return DOOR.names()


def _leads_out(path: Path, project: Path) -> bool:
    try:
        real = os.path.realpath(path)
    except ValueError:  # a null byte
        return True
    return not Path(real).is_relative_to(project.resolve())
