"""`sonde config trust`: let a project's file send, write and act."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import typer

from sonde.cli import console
from sonde.cli.config import toml
from sonde.config.acting import acting
from sonde.config.merging import check
from sonde.config.places import OWN_FILE, PROJECT_FILE, project_folder
from sonde.config.sources import Source, project_source
from sonde.config.trust import Trust
from sonde.core.secret import HIDDEN
from sonde.core.settings import flat, shown


def trust(file: Path | None, *, ask: bool) -> None:
    """Show what of the file sends, writes or acts, ask, and remember the answer.

    Args:
        file: Which; those of the project of the working directory where None.
        ask: Whether the person at the keyboard is asked.
    """
    trusted, here = Trust(os.environ), Path.cwd()
    files = [file] if file is not None else _of_project(here)
    found = False
    for path in files:
        source = project_source(path.absolute())
        keys = [] if source is None else acting(source.table, project=path.absolute().parent, folder=here)
        if source is None or not keys:
            continue
        check(source)
        found = True
        if trusted.holds(path, source.table):
            print(f"{console.one_line(path)} is trusted already")
            continue
        print(f"{console.one_line(path)} would send, write or act:")
        for key, value in _chosen(source, keys).items():
            print(f"  {console.one_line(f'{key} = {toml(_shown(key, value))}')}")
        if ask and not _is_wanted():
            raise console.CommandError("it is not trusted", status=1)
        trusted.add(path, source.table)
        print(f"{console.one_line(path)} is trusted until its settings change")
    if not found:
        where = f"{file}" if file is not None else "the project's files, if there are any,"
        print(f"{console.one_line(where)} needs no trust: nothing there sends, writes or acts")


def list_trusted() -> None:
    """Print the files that are trusted."""
    for path in Trust(os.environ).files():
        print(console.one_line(path))


def trust_no_more(file: Path | None) -> None:
    """Forget a file, or those of the project."""
    trusted = Trust(os.environ)
    for path in [file] if file is not None else _of_project(Path.cwd()):
        if trusted.remove(path):
            print(f"{console.one_line(path)} is trusted no more")
        elif file is not None:
            raise console.CommandError(f"{file} was not trusted; list those that are with: sonde config trust --list")


def _of_project(here: Path) -> list[Path]:
    folder = project_folder(here, os.environ)
    return [] if folder is None else [folder / name for name in (PROJECT_FILE, OWN_FILE) if (folder / name).exists()]


def _chosen(source: Source, keys: list[str]) -> dict[str, Any]:
    return {key: value for key, value in flat(source.table) if key in keys}


def _is_wanted() -> bool:
    if not sys.stdin.isatty():
        raise console.CommandError("there is nobody to ask; look at the settings above, then say --yes")
    return typer.confirm("Trust it?", default=False)


def _shown(key: str, value: Any) -> Any:
    """As in the file, but for what lets whoever reads it send too: where something goes must be seen, passwords not."""
    if isinstance(value, Mapping):
        return {name: _shown(name, item) for name, item in value.items()}
    if isinstance(value, list):
        return [_shown(key, item) for item in value]
    if isinstance(value, str) and key.rpartition(".")[2] in ("secret", "password", "token"):
        return HIDDEN
    if isinstance(value, str) and "://" in value:
        return _address(value)
    return shown(value) if isinstance(value, str) else value


def _address(url: str) -> str:
    """Protocol and host; of other protocols than those of the web and of mail the host may be a secret as well."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return HIDDEN
    if parts.scheme not in ("http", "https", "smtp", "smtps", "smtp+plain") or not parts.hostname:
        return f"{parts.scheme}://{HIDDEN}"
    return f"{parts.scheme}://{parts.hostname}{port}" + (f"/{HIDDEN}" if len(parts.path) > 1 or parts.query else "")
