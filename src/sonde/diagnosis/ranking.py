"""Which causes explain what was found, in order, with a confidence and the reason."""

import math
from collections.abc import Sequence
from dataclasses import replace

from sonde.core.causes import Cause
from sonde.core.findings import Finding, Severity, Suspect
from sonde.diagnosis.evidence import TABLE, Row
from sonde.diagnosis.remedies import remedies_for
from sonde.rules.picture import Picture
from sonde.rules.rule import Rule

_MOST_SUSPECTS = 4
_UNKNOWN = 0.0  # log-odds of "none of these"


class Ranking:
    """Scores causes by the table of evidence.

    A cause's score is its prior and, for each row of the table that names it, the row's weight where its sign was seen,
    and minus its cost where the sign was looked for and not seen. Signs are findings, of any severity. Confidence is
    the share of exp(score) among all causes that could explain the finding and "none of these".
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = {rule.code: rule for rule in rules}
        self._picture = Picture()

    def note(self, picture: Picture) -> None:
        """Remember the whole picture: remedies take their values from it."""
        self._picture = picture

    def explain(self, finding: Finding, findings: Sequence[Finding]) -> Finding:
        """The finding with its suspects and remedies, in the light of all findings."""
        rule = self._rules[finding.code]
        codes = {other.code: other for other in findings}
        scored = sorted(((self.score(cause, codes), cause) for cause in rule.causes), key=lambda pair: -pair[0][0])
        total = sum(math.exp(score) for (score, _), _ in scored) + math.exp(_UNKNOWN)
        suspects = tuple(
            Suspect(cause=cause, confidence=round(math.exp(score) / total, 2), because=because)
            for (score, because), cause in scored[:_MOST_SUSPECTS]
            if math.exp(score) / total >= 0.05
        )
        remedies = remedies_for(suspects[0].cause, self._picture) if suspects else ()
        return replace(finding, causes=suspects, remedies=tuple(remedies))

    def score(self, cause: Cause, codes: dict[str, Finding]) -> tuple[float, str]:
        """Log-odds of a cause, and what speaks for it most."""
        score, best, because = TABLE.prior(cause), 0.0, ""
        for row in TABLE.rows(cause):
            if row.sign in codes:
                score += row.weight
                if row.weight > best:
                    best, because = row.weight, _reason(row, codes[row.sign])
            else:
                score -= row.cost
        return score, because or "nothing else explains it better"

    def ordered(self, findings: Sequence[Finding]) -> tuple[Finding, ...]:
        """The worst first; among equals the one whose cause is surest, then the earliest."""
        rank = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.INFO: 2}

        def key(finding: Finding) -> tuple[int, float, int, str]:
            surest = finding.causes[0].confidence if finding.causes else 0.0
            return rank[finding.severity], -surest, finding.first_step, finding.code

        return tuple(sorted(findings, key=key))


def _reason(row: Row, finding: Finding) -> str:
    return f"{finding.message} ({row.why})" if row.why else finding.message
