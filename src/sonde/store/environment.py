"""Where a run was recorded: what a reader will want to know in a year, and no secrets."""

import os
import platform
import re
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

PACKAGES = ("torch", "numpy", "pyarrow", "triton", "transformers", "lightning", "accelerate")
_SECRET = re.compile(r"key|token|secret|passw|credential|auth|webhook", re.IGNORECASE)
_URL_USER = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_HIDDEN = "(hidden)"


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
        "host": os.uname().nodename,
        "cpus": os.cpu_count(),
        "packages": versions,
        "command": redact(sys.argv),
        "commit": commit(Path.cwd()),
    }


def redact(command: list[str]) -> list[str]:
    """A command line without what looks like a secret.

    Example:
        >>> redact(["train.py", "--lr=0.1", "--api-key", "abc", "--token=xyz"])
        ['train.py', '--lr=0.1', '--api-key', '(hidden)', '--token=(hidden)']
    """
    shown: list[str] = []
    hide_next = False
    for word in command:
        option, equals, _ = word.partition("=")
        if hide_next and not word.startswith("-"):
            shown.append(_HIDDEN)
            hide_next = False
            continue
        secret = bool(_SECRET.search(option)) and (word.startswith("-") or bool(equals))
        shown.append(f"{option}={_HIDDEN}" if secret and equals else _URL_USER.sub(_HIDDEN, word))
        hide_next = secret and not equals
    return shown


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
