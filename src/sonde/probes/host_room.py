"""How much memory the machine, or the container, still has for a process."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, final

import numpy as np
import psutil

from sonde.core.frames import MISSING

_PROC = Path("/proc")
_GROUPS = Path("/sys/fs/cgroup")
_MOST = 2**60  # a limit above it is how a control group says that there is none


class _Names(NamedTuple):
    """What the files of a control group are called."""

    limit: str
    used: str
    inactive: str
    """Of `memory.stat`: pages of files that the kernel drops before anybody has to go."""


_VERSION_1 = _Names("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_VERSION_2 = _Names("memory.max", "memory.current", "inactive_file")


@final
class HostRoom:
    """Reads how many bytes can be had before the kernel ends a process for want of memory.

    The smaller one of what the machine has available (free, and what can be dropped, such as cached files) and what the
    limit of the control group leaves, where it has one: a container or a job of a cluster mostly has. Control groups
    are read from Linux's own files: psutil knows none.

    Args:
        proc: Where Linux tells about this process.
        groups: Where it tells about control groups.
        machine: Gives the bytes that the machine has available.

    Example:
        >>> HostRoom(machine=lambda: 5e9, groups=Path("/nowhere")).read()
        5000000000.0
    """

    def __init__(
        self, *, proc: Path = _PROC, groups: Path = _GROUPS, machine: Callable[[], float] | None = None
    ) -> None:
        self._machine = machine or _machine
        self._limited = next(_limited(proc / "self/cgroup", groups), None)

    def read(self) -> float:
        """Bytes; `MISSING` where the system does not tell."""
        machine = self._machine()
        room = float(np.fmin(machine, self._of_group()))  # the one that is known, where the other is NaN
        return float(MISSING) if math.isnan(room) else room

    def _of_group(self) -> float:
        if self._limited is None:
            return math.nan
        folder, names = self._limited
        limit, used = _number(folder / names.limit), _number(folder / names.used)
        room = limit - used + _numbers(folder / "memory.stat").get(names.inactive, 0.0)
        return max(room, 0.0) if limit < _MOST else math.nan


def _machine() -> float:
    try:
        return float(psutil.virtual_memory().available)
    except (psutil.Error, OSError):  # not for us to see
        return math.nan


def _limited(file: Path, groups: Path) -> Iterator[tuple[Path, _Names]]:
    """The control groups of this process that may limit its memory; inside of a container its own is the root."""
    for line in _text(file).splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "memory":
            base, names = groups / "memory", _VERSION_1
        elif number == "0":
            base, names = groups, _VERSION_2
        else:
            continue
        for folder in (base / path.lstrip("/"), base):
            if (folder / names.limit).is_file():
                yield folder, names


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:  # another system, or not for us to see
        return ""


def _number(file: Path) -> float:
    words = _text(file).split()
    return float(words[0]) if words and words[0].isdigit() else math.nan


def _numbers(file: Path) -> dict[str, float]:
    """The first number of each line, by the word before it."""
    lines = (line.split() for line in _text(file).splitlines())
    return {words[0]: float(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}
