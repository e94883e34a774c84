"""The life of findings: each is opened once, updated while it is seen, and closed when it is not seen any more."""

import itertools
from collections.abc import Iterable, KeysView, Sequence
from dataclasses import replace

from sonde.core.findings import Evidence, Finding
from sonde.rules.rule import Rule, Sighting

_MOST_EVIDENCE = 6
_MOST_PLACES = 50
_MOST_CLOSED = 4  # of a rule: a condition that comes and goes for weeks must not fill the memory


class Ledger:
    """The findings of a run so far, one for each rule and stretch of time in which it saw its condition.

    Of a rule's findings that are over, the last few are kept apart; older ones are one, from the first step of the
    first to the last step of the last.
    """

    def __init__(self) -> None:
        self._open: dict[str, Finding] = {}
        self._closed: dict[str, list[Finding]] = {}
        self._newly_closed: list[Finding] = []
        self._last: dict[str, int] = {}
        """When findings were seen last, where that is all that is new about them."""

    def take(self, rule: type[Rule] | Rule, step: int, sightings: Sequence[Sighting]) -> Finding | None:
        """Note what a rule sees at a step: the finding that is new, or worse than before; else None."""
        finding = self._open.get(rule.code)
        if not sightings:
            if finding is not None and step - self._last.get(rule.code, finding.last_step) > rule.quiet_steps:
                over = replace(self._now(rule.code), open=False)
                self._keep(over)
                self._newly_closed.append(over)
                del self._open[rule.code]
                self._last.pop(rule.code, None)
            return None
        if finding is not None and _adds_nothing(finding, sightings):
            self._last[rule.code] = step
            return None
        seen = max(sightings, key=lambda sighting: sighting.severity)
        where = tuple(dict.fromkeys(place for sighting in sightings for place in sighting.where))
        evidence = tuple(item for sighting in sightings for item in sighting.evidence)[:_MOST_EVIDENCE]
        if finding is None:
            first = min(step if sighting.since is None else sighting.since for sighting in sightings)
            opened = Finding(
                code=rule.code,
                name=rule.name,
                severity=seen.severity,
                first_step=max(0, min(first, step)),
                last_step=step,
                open=True,
                where=where[:_MOST_PLACES],
                message=seen.message,
                evidence=evidence,
            )
            self._open[rule.code] = opened
            return opened
        self._last.pop(rule.code, None)
        worse = seen.severity > finding.severity
        updated = replace(
            finding,
            last_step=step,
            severity=max(finding.severity, seen.severity),
            where=tuple(dict.fromkeys((*finding.where, *where)))[:_MOST_PLACES],
            message=seen.message if worse else finding.message,
            evidence=evidence if worse else _kept(finding.evidence, evidence),
        )
        self._open[rule.code] = updated
        return updated if worse else None

    @property
    def open_codes(self) -> KeysView[str]:
        """The rules whose findings still hold: of the others there is nothing to note where they see nothing."""
        return self._open.keys()

    def put(self, finding: Finding) -> None:
        """Replace an open finding by one with causes and remedies."""
        if finding.code in self._open:
            self._open[finding.code] = finding
            self._last.pop(finding.code, None)

    def restore(self, findings: Iterable[Finding]) -> None:
        """Go on from the findings of another ledger."""
        self._open, self._closed, self._last, self._newly_closed = {}, {}, {}, []
        for finding in findings:
            if finding.open:
                self._open[finding.code] = finding
            else:
                self._keep(finding)

    def _keep(self, over: Finding) -> None:
        kept = self._closed.setdefault(over.code, [])
        kept.append(over)
        if len(kept) > _MOST_CLOSED:
            first, second, *rest = kept
            worse = second if second.severity > first.severity else first
            where = tuple(dict.fromkeys((*first.where, *second.where)))[:_MOST_PLACES]
            both = replace(worse, first_step=first.first_step, last_step=second.last_step, where=where)
            self._closed[over.code] = [both, *rest]

    def newly_closed(self) -> list[Finding]:
        """Those that were closed since this was last asked."""
        closed, self._newly_closed = self._newly_closed, []
        return closed

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All of them, by the step at which they began."""
        closed = itertools.chain.from_iterable(self._closed.values())
        return tuple(sorted((*closed, *self.open), key=lambda f: (f.first_step, f.code)))

    @property
    def open(self) -> tuple[Finding, ...]:
        """Those that still hold."""
        return tuple(map(self._now, self._open))

    def _now(self, code: str) -> Finding:
        finding, last = self._open[code], self._last.pop(code, None)
        if last is not None:
            finding = self._open[code] = replace(finding, last_step=last)
        return finding


def _adds_nothing(finding: Finding, sightings: Sequence[Sighting]) -> bool:
    """Whether a finding is merely seen again, as nearly all are at every step."""
    if not finding.evidence:
        return False
    for sighting in sightings:
        if sighting.severity is not finding.severity and sighting.severity > finding.severity:
            return False
        if sighting.where and not set(sighting.where) <= set(finding.where):
            return False
    return True


def _kept(old: tuple[Evidence, ...], new: tuple[Evidence, ...]) -> tuple[Evidence, ...]:
    """The first evidence stays: it is what the finding was opened for."""
    return old or new
