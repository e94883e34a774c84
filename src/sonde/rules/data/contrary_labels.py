"""DAT007 contrary-labels."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import amount
from sonde.rules.history.evaluations import Evaluations
from sonde.rules.history.level import has_level, untrained
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Onset, Severity, Sighting


class ContraryLabelsState(NamedTuple):
    """How many evaluations there were, and how far training was above validation when that could first be asked."""

    num: int = 0
    first: float = float("nan")


@dataclass(frozen=True, kw_only=True, slots=True)
class ContraryLabels:
    """The more a model learns, the farther its training loss stays above its validation loss.

    What it detects:
        - r is the training loss over the validation loss of the evaluation *before*. It is judged from `least`
          evaluations and 200 losses on.
        - r is more than `opened` times what it was at the second evaluation (or than 1), and the training loss is above
          that validation loss by three standard errors. A validation set that is merely easier has a high r from the
          start.
        - And one of two: the training loss has settled (less than 5% in three evaluations) above `high` of an untrained
          model's loss, r is above `apart`, and validation is above 0.4 of an untrained model's loss.
        - Or validation stands still (medians of three of the last six evaluations) above 0.3 of an untrained model's
          loss, while the training loss is above half of an untrained model's loss and 1.4 times as high as validation,
          and still falls by 3%: what training still learns does not hold for other examples.
        - Always a warning.

    Why it matters:
        A share of the training labels contradicts what the other labels teach. The model learns the rule first, and
        then the wrong examples by heart.

    Evidence:
        `loss` against the `val/loss` of the evaluation before, at the second evaluation and now.

    What to do:
        - Look at the training examples with the largest losses.
        - Compare how the labels of training and of validation were made.
        - Stop early, or use a loss that is robust to wrong labels.

    When it is wrong:
        - A term that only the training loss has (a penalty, an auxiliary head) and that shrinks more slowly than the
          rest looks the same.
        - Mixed labels keep the training loss high on purpose. Validation is low then.

    References:
        Arpit et al., A closer look at memorization in deep networks, ICML 2017. Zhang et al., Understanding deep
        learning requires rethinking generalization, ICLR 2017.
    """

    code: ClassVar[str] = "DAT007"
    name: ClassVar[str] = "contrary-labels"
    onset: ClassVar[Onset] = Onset.BACKDATED
    needs: ClassVar[tuple[str, ...]] = ("loss", "val/loss")
    reads: ClassVar[tuple[str, ...]] = ("val/loss",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.LABEL_NOISE: For("progress shows in validation, not in training"),
        Cause.UNDERFITTING: Against("validation shows that the rule was learned"),
        Cause.INSUFFICIENT_CAPACITY: Against("the same model does better on other examples"),
    }
    quiet_steps: ClassVar[int] = 10_000

    least: int = 5
    opened: float = 1.15
    apart: float = 1.25
    high: float = 0.7

    def init(self) -> ContraryLabelsState:
        """Before the first step."""
        return ContraryLabelsState()

    def step(self, state: ContraryLabelsState, look: Look) -> tuple[ContraryLabelsState, Sequence[Sighting]]:
        """Look at one more step."""
        before, seen = state.num, look.run.evaluations
        state = state._replace(num=seen.num)
        if seen.num == before or seen.num < 2:
            return state, ()
        training, validation = seen.trainings[-1], seen.validations[-2]
        ratio = training / validation if validation > 0 else math.nan
        if seen.num == 2:
            state = state._replace(first=ratio)
        run = look.run
        if seen.num < self.least or run.num_losses < 200 or not has_level(look):
            return state, ()
        reference = untrained(run)
        error = run.loss_scale / math.sqrt(min(seen.steps[-1] - seen.steps[-2], 50))
        if not (ratio > self.opened * max(state.first, 1.0) and training > validation + 3 * error):
            return state, ()
        settled = training > max(self.high * reference, 0.95 * seen.trainings[-4]) and ratio > self.apart
        settled = settled and min(seen.validations[-2:]) > 0.4 * reference
        if not (settled or _is_learned_by_heart(seen, reference)):
            return state, ()
        message = (
            f"the training loss of {amount(training)} is {amount(ratio)} times the validation loss of the evaluation "
            f"before ({amount(validation)}); at the second evaluation it was {amount(state.first)} times that loss"
        )
        evidence = (
            Evidence(tag="loss", step=look.view.step, value=training, expected=validation),
            Evidence(tag="val/loss", step=seen.steps[-2], value=validation, expected=reference),
        )
        return state, (Sighting(Severity.WARNING, message, evidence=evidence, since=seen.steps[0]),)


def _is_learned_by_heart(seen: Evaluations, reference: float) -> bool:
    """Whether training goes on to fall, high above a validation loss that stands."""
    if len(seen.validations) < 6:
        return False
    older, newer = float(np.median(seen.validations[-6:-3])), float(np.median(seen.validations[-3:]))
    stands = newer > max(0.97 * older, 0.3 * reference)
    high = min(seen.trainings[-3:]) > max(0.5 * reference, 1.4 * newer)
    return stands and high and seen.trainings[-1] < 0.97 * seen.trainings[-6]
