"""What a run says about its own watching: what is not measured, what the first looks found, what went wrong."""

from collections.abc import Mapping
from typing import Any

from sonde.core.errors import FormatError
from sonde.core.printable import one_line
from sonde.monitor.mailbox import Mailbox
from sonde.monitor.misuse import Misuse
from sonde.store.environment import redactor, told
from sonde.streams.logs import logger

_log = logger("sonde.monitor")

_MOST_PROBLEMS = 8
_MOST_REASON = 500  # characters: a message may hold a whole tensor


class Notices:
    """Events of the run, each said once; any thread may say one.

    Args:
        mailbox: Where events go.
    """

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._unmeasured: set[str] = set()
        self._problems: set[str] = set()
        self._misuses: set[str] = set()
        self.first_fault: Exception | None = None
        """Of our own."""

    def not_measured(self, tag: str, reason: str) -> None:
        """Something cannot be measured."""
        if tag not in self._unmeasured:
            self._unmeasured.add(tag)
            self._mailbox.event("not-measured", {"tag": tag, "reason": reason})

    def preflight(self, check: str, fact: Mapping[str, Any]) -> None:
        """A first look at the training has found something."""
        self._mailbox.event("preflight", {"check": check, **fact})

    def problem(self, error: Exception | str) -> None:
        """Something went wrong; not more than a few are kept."""
        said = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        reason = redactor().text(said)[:_MOST_REASON]  # first: half a secret is not known as one
        if reason not in self._problems and len(self._problems) < _MOST_PROBLEMS:
            self._problems.add(reason)
            self._mailbox.event("monitor-problem", {"reason": reason})

    def misused(self, message: str) -> None:
        """The caller got something wrong: told once, and once in the run."""
        shown = redactor().text(message)[:_MOST_REASON]
        if shown not in self._misuses and len(self._misuses) < _MOST_PROBLEMS:
            self._misuses.add(shown)
            _log.warning("%s", one_line(shown))
            self._mailbox.event("misuse", {"reason": shown})

    def fail(self, error: Exception) -> None:
        """A fault of our own, of which the user is told the first; or a caller's, of which each is told once."""
        if isinstance(error, Misuse | FormatError):
            self.misused(str(error))
            return
        self.problem(error)
        if self.first_fault is None:
            self.first_fault = error
            _log.warning("watching has a problem and goes on with what is left: %s", told(error))
