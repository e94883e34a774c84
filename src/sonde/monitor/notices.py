"""What a run says about its own watching: what is not measured, what the first looks found, what went wrong."""

from collections.abc import Callable, Mapping
from typing import Any

from sonde.store.environment import redactor

_MOST_PROBLEMS = 8
_MOST_REASON = 500  # characters: a message may hold a whole tensor


class Notices:
    """Events of the run, each said once.

    Args:
        put: Writes an event, by its kind.
        warn: Told about a problem; says the first one to the user.
    """

    def __init__(self, put: Callable[[str, Mapping[str, Any]], None], warn: Callable[[Exception], None]) -> None:
        self._put, self._warn = put, warn
        self._unmeasured: set[str] = set()
        self._problems: set[str] = set()

    def not_measured(self, tag: str, reason: str) -> None:
        """Something cannot be measured."""
        if tag not in self._unmeasured:
            self._unmeasured.add(tag)
            self._put("not-measured", {"tag": tag, "reason": reason})

    def preflight(self, check: str, fact: Mapping[str, Any]) -> None:
        """A first look at the training has found something."""
        self._put("preflight", {"check": check, **fact})

    def problem(self, error: Exception | str) -> None:
        """Something of ours went wrong; not more than a few are kept."""
        said = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        reason = redactor().text(said)[:_MOST_REASON]  # first: half a secret is not known as one
        if reason not in self._problems and len(self._problems) < _MOST_PROBLEMS:
            self._problems.add(reason)
            self._put("monitor-problem", {"reason": reason})

    def fail(self, error: Exception) -> None:
        """The same, on the training thread: the user is told as well."""
        self.problem(error)
        self._warn(error)
