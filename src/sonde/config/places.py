"""Where configuration may stand: in the project of the working directory, and in the user's own folder."""

import os
from collections.abc import Mapping
from pathlib import Path

from sonde.config.own_files import everybody_writes

OWN_FILE, PROJECT_FILE = "sonde.toml", "pyproject.toml"


def own_folder(environment: Mapping[str, str]) -> Path | None:
    """The user's own: `$XDG_CONFIG_HOME/sonde`, by default `~/.config/sonde`; None where there is no home."""
    given = environment.get("XDG_CONFIG_HOME", "")
    if Path(given).is_absolute():  # the standard says that others do not count
        return Path(given) / "sonde"
    home = environment.get("HOME", "")
    return Path(home) / ".config" / "sonde" if Path(home).is_absolute() else None


def project_folder(folder: Path, environment: Mapping[str, str]) -> Path | None:
    """The nearest folder with a file of ours or a `pyproject.toml`, from the working directory upwards.

    No further than the root of the repository (`.git`) or the home folder; in neither of them it is the working
    directory itself or none: whoever can write a folder above could otherwise configure everybody's trainings below it.
    """
    for place in _upwards(folder.resolve(), environment):
        if os.path.lexists(place / OWN_FILE) or os.path.lexists(place / PROJECT_FILE):
            return place
    return None


def _upwards(folder: Path, environment: Mapping[str, str]) -> list[Path]:
    home = _home(environment)
    walked = []
    for place in (folder, *folder.parents):
        walked.append(place)
        is_repository = os.path.lexists(place / ".git") and not everybody_writes(place)  # anybody can make /tmp/.git
        if is_repository or place == home:
            return walked
    return [folder]


def _home(environment: Mapping[str, str]) -> Path | None:
    """The home folder, where it is one: containers have "/" or a folder of everybody there."""
    given = environment.get("HOME", "")
    if not Path(given).is_absolute():
        return None
    home = Path(os.path.realpath(given))
    return None if home == home.parent or everybody_writes(home) else home
