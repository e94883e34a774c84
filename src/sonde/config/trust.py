"""Which projects' files the user has looked at, and lets send, write and act."""

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sonde.config.own_files import read
from sonde.config.places import own_folder
from sonde.core.errors import SettingError
from sonde.core.settings import flat

_FILE = "trusted.json"


class Trust:
    """The files that are trusted, each with the settings that it had when the user said so.

    Args:
        environment: Where the user's own folder is; without one nothing is trusted.

    A file with any other setting than then is not trusted any more; comments and what else a `pyproject.toml` holds do
    not count.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._folder = own_folder(environment)

    def holds(self, file: Path, table: Mapping[str, Any]) -> bool:
        """Whether a file with these settings is trusted."""
        return self.files().get(str(file.resolve())) == digest(table)

    def files(self) -> dict[str, str]:
        """The digest of the settings of each file, by path; none where the list is damaged or not the user's own."""
        content = None if self._folder is None else read(self._folder / _FILE)
        if content is None or content.trouble:
            return {}
        try:
            listed = json.loads(content.data)["files"]
            return {str(path): str(seen) for path, seen in listed.items()}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return {}

    def add(self, file: Path, table: Mapping[str, Any]) -> None:
        """Trust the file as long as it has these settings.

        Raises:
            SettingError: there is no folder to remember it in.
            OSError: the folder cannot be written.
        """
        self._write({**self.files(), str(file.resolve()): digest(table)})

    def remove(self, file: Path) -> bool:
        """Trust it no more; whether it was."""
        listed = self.files()
        was = listed.pop(str(file.resolve()), None) is not None
        if was:
            self._write(listed)
        return was

    def _write(self, files: Mapping[str, str]) -> None:
        if self._folder is None:
            raise SettingError("there is no home folder to remember it in; set HOME or XDG_CONFIG_HOME")
        import tempfile  # every script that is watched waits for what is imported above

        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd, name = tempfile.mkstemp(prefix=_FILE, dir=self._folder)  # 0600
        try:
            with open(fd, "w", encoding="utf-8") as file:  # noqa: PTH123  # the descriptor that mkstemp made
                json.dump({"schema": 1, "files": dict(sorted(files.items()))}, file, indent=1)
            os.replace(name, self._folder / _FILE)  # noqa: PTH105
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)  # noqa: PTH108
            raise


def digest(table: Mapping[str, Any]) -> str:
    """One word for all settings of a file."""
    import hashlib

    return hashlib.sha256(json.dumps(dict(flat(table)), sort_keys=True, default=str).encode()).hexdigest()
