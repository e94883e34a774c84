"""Tracebacks as the user would see them without us."""

import os
from pathlib import Path
from types import TracebackType

_OURS = str(Path(__file__).parents[1]) + os.sep
_RUNNER = str(Path(__file__).with_name("runner.py"))


def without_ours(error: BaseException) -> TracebackType | None:
    """The traceback of an exception without frames of Sonde, its causes and contexts likewise.

    The first frames are those that led to the script, up to the runner's; ours in between are wrappers around functions
    of torch. What the script itself raised in a module of Sonde (`sonde.watch(None)`) keeps its last frame.

    Example:
        >>> try:
        ...     raise ValueError("wrong")
        ... except ValueError as error:
        ...     without_ours(error) is error.__traceback__
        True
    """
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error.__cause__, error.__context__]
    while waiting:
        other = waiting.pop()
        if other is not None and id(other) not in seen:
            seen.add(id(other))
            other.__traceback__ = _trimmed(other.__traceback__)
            waiting += [other.__cause__, other.__context__]
            if isinstance(other, BaseExceptionGroup):
                waiting += other.exceptions
    return _trimmed(error.__traceback__)


def _trimmed(trace: TracebackType | None) -> TracebackType | None:
    entries = []
    while trace is not None:
        entries.append(trace)
        trace = trace.tb_next
    files = [entry.tb_frame.f_code.co_filename for entry in entries]
    if _RUNNER in files:
        first = files.index(_RUNNER)
        while first < len(files) and (files[first].startswith(_OURS) or files[first] == "<frozen runpy>"):
            first += 1
        if first < len(files):
            entries, files = entries[first:], files[first:]
    last = len(entries) - 1
    entries = [entry for i, entry in enumerate(entries) if i == last or not files[i].startswith(_OURS)]
    kept: TracebackType | None = None
    for entry in reversed(entries):
        entry.tb_next = kept
        kept = entry
    return kept
