"""How many findings a run has, by severity: each counts once, however often it was told."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from sonde.core.findings import Severity
from sonde.store import layout

_MOST = 10_000  # that are told apart


@final
class FindingCounts:
    """Counts the events `finding`; another of the same code and first step is the same finding, told again."""

    def __init__(self) -> None:
        self._found: dict[tuple[Any, Any], str] = {}
        self.total = 0

    def add(self, data: Mapping[str, Any]) -> None:
        """A finding was told."""
        code, first = data.get("code"), data.get("first_step")
        key = (str(code), str(first)) if code is not None else (None, self.total)
        if key not in self._found:
            self.total += 1
        if len(self._found) < _MOST or key in self._found:
            self._found[key] = str(data.get("severity", ""))

    def read(self, run: Path, total: int) -> None:
        """Go on from what an earlier session of a run has told.

        Args:
            run: Its folder.
            total: How many it says there were.
        """
        if total:
            for line in layout.read_lines(run / layout.EVENTS):
                if isinstance(line, dict) and line.get("kind") == "finding" and isinstance(line.get("data"), dict):
                    self.add(line["data"])

    def by_severity(self) -> dict[str, int]:
        """Those that have one, the worst first."""
        counted = Counter(self._found.values())
        return {word.value: counted[word.value] for word in reversed(Severity) if counted[word.value]}
