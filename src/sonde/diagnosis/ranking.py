"""Which causes explain what was found, in order, with a confidence and the reason."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sonde.core.causes import Cause
from sonde.core.findings import Finding, Severity, Suspect
from sonde.core.remedies import Remedy
from sonde.diagnosis.circumstances import Circumstances
from sonde.diagnosis.evidence import Row, Table
from sonde.diagnosis.preconditions import impossible
from sonde.diagnosis.remedies import remedies_for
from sonde.diagnosis.signs import Signs
from sonde.rules.history.run_summary import RunSummary
from sonde.rules.losses.non_finite_loss import NonFiniteLoss
from sonde.rules.rule import Rule, causes_of

_MOST_SUSPECTS = 4
_UNKNOWN = 0.0  # log-odds of "none of these"
_LIKELY = 0.1  # of all causes
_MOST_SURE = 0.98  # of trainings that nothing was tuned on, 2% to 5% are not what all evidence says
_LEAST = 0.05
_BLIND = 0.5
_NOTHING = "nothing else explains it better"

OF_MACHINES = frozenset(
    {
        Cause.MEMORY_LEAK,
        Cause.MEMORY_NEAR_LIMIT,
        Cause.DATA_STALL,
        Cause.STRAGGLER,
        Cause.SLOWDOWN,
        Cause.RANK_DIVERGENCE,
        Cause.NONDETERMINISM,
    }
)
"""Causes of which the numbers of a training say nothing."""

OF_FINITE_LOSSES = frozenset(
    {
        Cause.LR_TOO_LOW,
        Cause.SCHEDULE_DECAYS_TOO_FAST,
        Cause.MISSING_LR_DECAY,
        Cause.VANISHING_GRADIENTS,
        Cause.CLIP_TOO_AGGRESSIVE,
        Cause.SYMMETRIC_INITIALISATION,
        Cause.DEAD_UNITS,
        Cause.SATURATED_UNITS,
        Cause.OVERFITTING,
        Cause.MISSING_REGULARISATION,
        Cause.UNDERFITTING,
        Cause.INSUFFICIENT_CAPACITY,
        Cause.PLATEAU,
        Cause.LABEL_NOISE,
        Cause.NO_LEARNABLE_SIGNAL,
        Cause.DISCONNECTED_LAYER,
        Cause.PARAMETER_NOT_IN_OPTIMIZER,
        Cause.FROZEN_LAYER,
        Cause.ZERO_GRAD_MISPLACED,
        Cause.DOUBLE_SOFTMAX,
        Cause.TRAIN_MODE_IN_EVALUATION,
        Cause.BATCH_TOO_LARGE,
        Cause.ADAM_EPSILON_UNDERFLOW,
    }
)
"""Causes that hold a training back or spoil its result, and make no loss infinite or NaN."""


class Ranking:
    """Scores causes by the table of evidence.

    A cause's score is its prior and, for each row of the table that names it, the row's weight where its sign was seen,
    and minus its cost where the sign was looked for and not seen; half of it where the rule had not the series that it
    needs. Signs are findings, of any severity, that were there in time (`diagnosis.signs`). Confidence is the share of
    exp(score) among all causes that could explain the finding and "none of these". Causes that cannot be in this
    training (`diagnosis.preconditions`) are none.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._causes = {rule.code: frozenset(causes_of(rule)) for rule in rules}
        self._table, self._signs = Table(rules), Signs(rules)
        self._run, self._circumstances = RunSummary(), Circumstances()
        self._blind: frozenset[str] = frozenset()

    def note(self, run: RunSummary, circumstances: Circumstances) -> None:
        """Remember the summary of the run, from which remedies take their values, and what makes causes impossible."""
        self._run, self._circumstances = run, circumstances

    def blind(self, codes: Iterable[str]) -> None:
        """Which rules have not had the series that they need: that they saw nothing says little."""
        self._blind = frozenset(codes)

    def explain(self, finding: Finding, findings: Sequence[Finding]) -> Finding:
        """The finding with its suspects and remedies, in the light of all findings.

        Suspects are the causes that its rule names, and any other that the rest of the evidence makes likely: a loss
        that is no longer finite is then laid at the door of the mistake that was found in the loop.
        """
        named = self._causes[finding.code]
        seen = {**self._signs.seen(findings, self._signs.onset(finding)), finding.code: finding}
        scores = self.scores(seen)
        lost = seen.get(NonFiniteLoss.code)
        if lost is not None and finding.first_step >= lost.first_step:
            scores = {cause: score for cause, score in scores.items() if cause not in OF_FINITE_LOSSES}
        shares = _shares({cause: score for cause, (score, _) in scores.items()})
        # What slows a machine down explains no loss, and the other way round.
        is_apart = named <= OF_MACHINES
        candidates = {
            cause: score
            for cause, score in scores.items()
            if cause in named or (shares[cause] >= _LIKELY and not is_apart and cause not in OF_MACHINES)
        }
        own = _shares({cause: score for cause, (score, _) in candidates.items()})
        # A cause for which nothing was seen stands behind every one for which something was.
        order = sorted(own, key=lambda cause: -own[cause])
        spoken_for = [cause for cause in order if candidates[cause][1] != _NOTHING]
        order = (spoken_for or order)[:_MOST_SUSPECTS]
        suspects = tuple(
            Suspect(cause=cause, confidence=round(_MOST_SURE * own[cause], 2), because=candidates[cause][1])
            for cause in order
            if own[cause] >= _LEAST or (cause is order[0] and spoken_for)
        )
        remedies = self.remedies(suspects[0].cause, finding) if suspects and suspects[0].is_sure else ()
        return replace(finding, causes=suspects, remedies=tuple(remedies))

    def remedies(self, cause: Cause, finding: Finding | None = None) -> Sequence[Remedy]:
        """What to try against a cause in this training, the best first."""
        circumstances = self._circumstances
        is_fp16 = True if circumstances.is_scaled else circumstances.is_fp16
        return remedies_for(cause, self._run, finding, is_fp16=is_fp16)

    def scores(self, seen: Mapping[str, Finding]) -> dict[Cause, tuple[float, str]]:
        """Log-odds of every cause that can be, and what speaks for it most."""
        excluded = impossible(self._circumstances, self._run)
        return {cause: self._score(cause, seen) for cause in Cause if cause not in excluded}

    def _score(self, cause: Cause, seen: Mapping[str, Finding]) -> tuple[float, str]:
        score, best, because = self._table.prior(cause), 0.0, ""
        for row in self._table.rows(cause):
            if row.sign in seen:
                score += row.weight
                if row.weight > best:
                    best, because = row.weight, _reason(row, seen[row.sign])
            elif row.cost:
                score -= row.cost * (_BLIND if row.code in self._blind else 1.0)
        return score, because or _NOTHING

    def ordered(self, findings: Sequence[Finding]) -> tuple[Finding, ...]:
        """Alarms first, and of these the one whose cause best explains how the trouble began: symptoms come behind."""
        seen = self._signs.seen(findings, self._signs.first_onset(findings))
        shares = _shares({cause: score for cause, (score, _) in self.scores(seen).items()})

        def key(finding: Finding) -> tuple[bool, float, int, int, str]:
            cause = round(shares[finding.causes[0].cause], 2) if finding.causes else 0.0
            worst = -list(Severity).index(finding.severity)
            return not finding.severity.is_alarm, -cause, finding.first_step, worst, finding.code

        return tuple(sorted(findings, key=key))


def _shares(scores: Mapping[Cause, float]) -> dict[Cause, float]:
    total = sum(math.exp(score) for score in scores.values()) + math.exp(_UNKNOWN)
    return {cause: math.exp(score) / total for cause, score in scores.items()}


def _reason(row: Row, finding: Finding) -> str:
    return f"{finding.message} ({row.why})" if row.why else finding.message
