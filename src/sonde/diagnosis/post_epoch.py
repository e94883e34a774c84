"""What is said after each epoch: how it went, what is amiss, and what to try."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sonde.core.causes import Cause
from sonde.core.findings import Finding
from sonde.core.groups import groups
from sonde.core.quantities import amount, share
from sonde.core.remedies import Remedy
from sonde.rules.generalisation.epoch_assessment import EpochAssessment
from sonde.rules.history.assessment import Assessment
from sonde.rules.history.epochs import Epochs
from sonde.rules.history.first_epoch import FirstEpoch
from sonde.rules.schedules.first_epoch_spiked import FirstEpochSpiked
from sonde.rules.schedules.first_epoch_still import FirstEpochStill
from sonde.rules.step_view import StepView

PROPOSED = "  try: "
"""How lines begin that say what might be tried."""
Remedies = Callable[[Cause], Sequence[Remedy]]
"""What to try against a cause, the best first."""


class PostEpochState(NamedTuple):
    """The epochs so far, the last update ratio and learning rates, the first epoch's losses."""

    epochs: Epochs = Epochs()
    ratio: float = float("nan")
    lr: float = float("nan")
    lr_peak: float = float("nan")
    first: FirstEpoch = FirstEpoch()


@dataclass(frozen=True, kw_only=True, slots=True)
class PostEpoch:
    """Evaluates every epoch of which a validation loss is known: series to store, and lines to print.

    With v the validation and t the training loss of the last epoch, v₋ the validation loss of the one before and v₁
    that of the first (`Epochs` says when an epoch ends and which losses are its own):

    - `evaluation/improvement_rate`: (v₋ − v)/|v₋|, from the second epoch on;
    - `evaluation/train_val_gap`: (v − t)/max(t, |v₁|/10);
    - `evaluation/plateau_detected`: 1 where the last three rates were all below 1% either way, else 0; from the second
      epoch on.

    An improvement is told with its band: poor below 1%, acceptable up to 5%, good above.

    After the first epoch the learning rate is judged by its losses: too low where they barely moved, too high where
    they spiked (the rules `first-epoch-still` and `first-epoch-spiked` say when).

    After epochs 2 and 3 and every later one the learning rate is validated: it is too low where neither loss has moved
    by 1% since the first epoch or updates are below 1e-7 of the weights (unless a schedule has brought the rate below a
    tenth of its peak), and too high where a loss is 10% above its first or updates are above a tenth of the weights.
    The size of updates says nothing against a rate by which the epoch went well.

    Args:
        rule: Whose thresholds are used; `EpochAssessment` names them.

    Example:
        >>> evaluation = PostEpoch()
        >>> state = evaluation.init()
        >>> epochs = zip((3.2, 2.1, 2.0, 1.98), (3.5, 2.8, 2.7, 2.68), strict=True)
        >>> for epoch, (loss, validation) in enumerate(epochs, 1):
        ...     numbers = {"loss": loss, "val/loss": validation, "lr": 0.1, "epoch": float(epoch)}
        ...     state, values = evaluation.step(state, StepView(epoch, numbers, {}, ()))
        >>> {tag.partition("/")[2]: round(value, 3) for tag, value in values.items()}
        {'improvement_rate': 0.007, 'train_val_gap': 0.354, 'plateau_detected': 0.0}
        >>> from sonde.diagnosis.remedies import remedies_for
        >>> from sonde.rules.history.run_summary import RunSummary
        >>> remedies = lambda cause: remedies_for(cause, RunSummary(lr=0.1))
        >>> print(*evaluation.report(state, remedies), sep=chr(10))
        epoch 4: slowing; validation loss 2.68 (0.7% better, poor), training loss 1.98, gap 35%; learning rate fine
          issue: the validation loss improved by 0.7%, less than 1%
          issue: the validation loss is 35% above the training loss, more than 30%; on its own this is no overfitting
          try: lower the learning rate from 0.1 to 0.05
    """

    rule: EpochAssessment = field(default_factory=EpochAssessment)

    def init(self) -> PostEpochState:
        """Before the first step."""
        return PostEpochState()

    def step(self, state: PostEpochState, view: StepView) -> tuple[PostEpochState, Mapping[str, float]]:
        """What is to be stored at this step; nothing where no epoch ended, or none with a validation loss."""
        lr, ratio = view.value("lr"), view.value("update/ratio")
        state = PostEpochState(
            state.epochs.noted(view),
            ratio if math.isfinite(ratio) else state.ratio,
            lr if math.isfinite(lr) else state.lr,
            lr if lr > state.lr_peak or math.isnan(state.lr_peak) else state.lr_peak,
            state.first.after(view),
        )
        if not state.epochs.ended_at(view.step):
            return state, {}
        found = self.rule.assessed(state.epochs)
        values = {
            "evaluation/improvement_rate": found.improvement_rate,
            "evaluation/train_val_gap": found.gap,
            "evaluation/plateau_detected": float(found.plateau) if state.epochs.ended.num > 1 else float("nan"),
        }
        return state, {tag: value for tag, value in values.items() if math.isfinite(value)}

    def report(self, state: PostEpochState, remedies: Remedies, alarms: Sequence[Finding] = ()) -> list[str]:
        """The lines to print after the epoch that ended last; none before the first, one where all is well.

        Losses that are not above zero have no scale: of those only the numbers are told. While there are alarms, the
        numbers and their causes, a line each: what to do is said there, and said once.

        Args:
            state: After the last step.
            remedies: What helps against a cause in this training.
            alarms: Those that are open.
        """
        ended = state.epochs.ended
        if not ended.num:
            return []
        found = self.rule.assessed(state.epochs)
        if alarms or not (ended.first > 0 and ended.trainings[-1] > 0):
            return [_headline(state, found, judged=not alarms), *(f"  see {one.summary}" for one in groups(alarms))]
        if ended.num == 1:
            rate, issues = _first_rate(state.first), []
        else:
            rate = self._rate(state, found) if self.rule.judges_rate(state.epochs.number) else ""
            issues = list(self._issues(found))
        headline = _headline(state, found) + (f"; learning rate {rate}" if rate else "")
        suspected = _CAUSES.get(f"rate {rate}") or _CAUSES.get(found.verdict)
        tried = remedies(suspected) if suspected is not None else ()
        return [
            headline,
            *(f"  issue: {issue}" for issue in issues),
            *(f"{PROPOSED}{remedy.text}" for remedy in tried),
        ]

    def _issues(self, found: Assessment) -> Iterator[str]:
        least, widest = self.rule.least_improvement, self.rule.widest_gap
        if found.plateau:
            yield f"the validation loss moved less than {share(least)} in each of the last {self.rule.patience} epochs"
        elif found.improvement_rate < 0:
            yield f"the validation loss got worse by {share(-found.improvement_rate)}"
        elif found.improvement_rate < least:
            yield f"the validation loss improved by {share(found.improvement_rate)}, less than {share(least)}"
        if found.gap > widest:
            alone = "" if found.verdict == "overfitting" else "; on its own this is no overfitting"
            yield f"the validation loss is {share(found.gap)} above the training loss, more than {share(widest)}{alone}"
        if found.verdict == "underfitting":
            yield "training and validation losses have come down little, and slowly"
        if found.verdict == "diverging":
            yield "the training or validation loss is more than 10% above that of the first epoch"

    def _rate(self, state: PostEpochState, found: Assessment) -> str:
        has_decayed, went_well = state.lr < 0.1 * state.lr_peak, found.verdict == "healthy"
        if found.learning_rate == "too-high" or (state.ratio > 0.1 and not went_well):
            return "too high"
        if not has_decayed and (found.learning_rate == "too-low" or (state.ratio < 1e-7 and not went_well)):
            return "too low"
        return "fine"


def _first_rate(first: FirstEpoch) -> str:
    """By the losses of the first epoch; empty where they cannot tell."""
    found, still, spiked = first.verdict, FirstEpochStill(), FirstEpochSpiked()
    if found is None:
        return ""
    if found.is_spiked(spiked.spike, spiked.rise):
        return "too high"
    is_still = found.is_still(still.least_fall, still.hidden)
    return "" if is_still and first.is_warming_up else "too low" if is_still else "fine"


_CAUSES = {
    "rate too high": Cause.LR_TOO_HIGH,
    "rate too low": Cause.LR_TOO_LOW,
    "slowing": Cause.PLATEAU,
    "plateau": Cause.PLATEAU,
    "overfitting": Cause.OVERFITTING,
    "underfitting": Cause.UNDERFITTING,
}
"""Whose remedies are told, by what was found."""


def _headline(state: PostEpochState, found: Assessment, *, judged: bool = True) -> str:
    ended, rate = state.epochs.ended, found.improvement_rate
    band = f", {found.progress}" if judged else ""
    change = f" ({share(abs(rate))} {'better' if rate >= 0 else 'worse'}{band})" if math.isfinite(rate) else ""
    verdict = f" {found.verdict};" if judged and found.verdict != "unknown" else ""
    gap = f", gap {share(found.gap)}" if math.isfinite(found.gap) else ""
    validation, training = amount(ended.validations[-1]), amount(ended.trainings[-1])
    losses = f"validation loss {validation}{change}, training loss {training}{gap}"
    return f"epoch {state.epochs.number}:{verdict} {losses}"
