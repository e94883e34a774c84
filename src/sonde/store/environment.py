"""Where a run is recorded: what a reader will want to know in a year, and which secrets must not be in it."""

import functools
import os
import platform
import sys
import traceback
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from sonde.core.redaction import Redactor, secrets_of

PACKAGES = ("torch", "numpy", "pyarrow", "triton", "transformers", "lightning", "accelerate")


class Origin(NamedTuple):
    """Where and when a training was that others have recorded."""

    created: float
    """UTC, seconds since 1970."""
    environment: Mapping[str, Any]
    """As `describe` gives it, as far as that is known."""


def describe() -> dict[str, Any]:
    """Python, platform, packages, machine, command and the commit of the working folder."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": platform.node(),
        "cpus": os.cpu_count(),
        "packages": versions,
        "command": list(sys.argv),
        "commit": commit(Path.cwd()),
    }


def redactor() -> Redactor:
    """What everything passes that enters a run; it knows the secrets of the environment as that is now."""
    return _redactor(secrets_of(os.environ))


def told(error: BaseException) -> str:
    """An exception for a log: where it came from, and its message without secrets."""
    return redactor().text("".join(traceback.format_exception(error)).rstrip())


@functools.lru_cache(maxsize=4)
def _redactor(secrets: frozenset[str]) -> Redactor:
    return Redactor(secrets)


def commit(folder: Path) -> str | None:
    """The commit that is checked out where the program runs, read from the files of git; None where there is none."""
    try:
        for parent in (folder, *folder.parents):
            git = parent / ".git"
            if git.is_file():  # a worktree
                git = parent / git.read_text(encoding="utf-8").removeprefix("gitdir:").strip()
            head = git / "HEAD"
            if not head.is_file():
                continue
            text = head.read_text(encoding="utf-8").strip()
            if not text.startswith("ref:"):
                return text
            name = text.removeprefix("ref:").strip()
            shared = git / "commondir"  # where the branches of a worktree are
            refs = git / shared.read_text(encoding="utf-8").strip() if shared.is_file() else git
            reference = refs / name
            if reference.is_file():
                return reference.read_text(encoding="utf-8").strip()
            packed = refs / "packed-refs"
            for line in packed.read_text(encoding="utf-8").splitlines() if packed.is_file() else ():
                if line.endswith(f" {name}"):
                    return line.split(" ", 1)[0]
            return None
    except (OSError, ValueError):  # not readable, or not text
        return None
    return None
