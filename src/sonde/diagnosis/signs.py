"""Which findings speak for a cause: what came too late to have brought something about does not."""

import sys
from collections.abc import Iterable, Mapping, Sequence

from sonde.core.findings import Finding
from sonde.rules.losses.non_finite_loss import NonFiniteLoss
from sonde.rules.rule import Onset, Rule, When, onset_of

_LATE_STEPS = {Onset.SUDDEN: 5, Onset.AT_A_LOOK: 20}
"""So much later than the trouble, a condition is no cause of it."""


class Signs:
    """What findings are signs of, by the rules that found them."""

    def __init__(self, rules: Iterable[type[Rule] | Rule]) -> None:
        self._onsets = {rule.code: onset_of(rule) for rule in rules}

    def seen(self, findings: Iterable[Finding], onset: int) -> Mapping[str, Finding]:
        """What may explain trouble that began at `onset`, by sign; of several findings of a rule the first.

        A sudden condition that began more than five steps after the onset (or by the next look at it, where looks are
        rare) is left out: it may be a consequence, and cannot be the cause. So is nearly everything that began after
        the loss was no longer finite. A finding stands under its rule's code, and under that with each `When` it meets.
        """
        by_code: dict[str, Finding] = {}
        for finding in findings:
            if finding.code not in by_code or finding.first_step < by_code[finding.code].first_step:
                by_code[finding.code] = finding
        lost = by_code[NonFiniteLoss.code].first_step if NonFiniteLoss.code in by_code else sys.maxsize
        seen = {code: finding for code, finding in by_code.items() if self._is_in_time(finding, onset, lost)}
        dated = {code: finding for code, finding in seen.items() if self._kind(finding) is not Onset.BACKDATED}
        signs = dict(seen)
        for code, finding in seen.items():
            met = [When.ALARM] if finding.severity.is_alarm else []
            met += [When.PLACED] if finding.where else []
            met += [When.ONE_PLACE] if len(finding.where) == 1 else []
            others = [other for other in dated.values() if other is not finding]
            is_late = any(other.severity.is_alarm and other.first_step <= finding.first_step for other in others)
            if not is_late and any(other.first_step > finding.first_step for other in others):
                met.append(When.FIRST)
            signs |= {f"{code}{when}": finding for when in met}
        return signs

    def onset(self, finding: Finding) -> int:
        """The step at which what was found began, as far as that is known; else later than everything."""
        return sys.maxsize if self._kind(finding) is Onset.BACKDATED else finding.first_step

    def first_onset(self, findings: Sequence[Finding]) -> int:
        """The step at which trouble began: of the first alarm that knows it."""
        return min((self.onset(finding) for finding in findings if finding.severity.is_alarm), default=sys.maxsize)

    def _kind(self, finding: Finding) -> Onset:
        return self._onsets.get(finding.code, Onset.GRADUAL)

    def _is_in_time(self, finding: Finding, onset: int, lost: int) -> bool:
        kind = self._kind(finding)
        if finding.first_step > lost and kind is not Onset.OF_COLLAPSE:
            return False
        return kind not in _LATE_STEPS or finding.first_step <= onset + _LATE_STEPS[kind]
