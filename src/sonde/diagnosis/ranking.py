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
_SURE = 2.0  # seven to one
_LEAST = 0.05


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
        """The finding with its suspects and remedies, in the light of all findings.

        Suspects are the causes that its rule names, and any other that the rest of the evidence makes sure: a loss that
        is no longer finite is then laid at the door of the mistake that was found in the loop.
        """
        rule = self._rules[finding.code]
        codes = {other.code: other for other in findings}
        scores = {cause: self.score(cause, codes) for cause in Cause}
        candidates = {cause: score for cause, score in scores.items() if cause in rule.causes or score[0] > _SURE}
        scored = sorted(candidates.items(), key=lambda item: -item[1][0])
        total = sum(math.exp(score) for score, _ in candidates.values()) + math.exp(_UNKNOWN)
        suspects = tuple(
            Suspect(cause=cause, confidence=round(math.exp(score) / total, 2), because=because)
            for cause, (score, because) in scored[:_MOST_SUSPECTS]
            if math.exp(score) / total >= _LEAST
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
        """Alarms first, and of these the one whose cause is surest: symptoms stand behind what explains them."""

        def key(finding: Finding) -> tuple[bool, float, int, int, str]:
            surest = finding.causes[0].confidence if finding.causes else 0.0
            worst = -list(Severity).index(finding.severity)
            return not finding.severity.is_alarm, -round(surest, 1), worst, finding.first_step, finding.code

        return tuple(sorted(findings, key=key))


def _reason(row: Row, finding: Finding) -> str:
    return f"{finding.message} ({row.why})" if row.why else finding.message
