"""DAT007 contrary-labels."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.rules.generalisation.evaluations import Evaluations
from sonde.rules.levels import has_level, untrained
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Onset, Severity, Sighting


class ContraryLabelsState(NamedTuple):
    """The evaluations, and how far training was above validation when that could first be asked."""

    evaluations: Evaluations = Evaluations()
    first: float = float("nan")


@dataclass(frozen=True, kw_only=True, slots=True)
class ContraryLabels:
    """The more a model learns, the farther its training loss stays above validation.

    What it detects:
        r, the training loss over the validation loss of the evaluation *before*, has opened since the second evaluation
        (`opened` times as wide; a validation set that is merely easier is so from the start), after 200 losses and
        `least` evaluations, and validation is not low. And one of two things. The training loss has settled (the last
        three evaluations brought less than 5%) above `high` of what a model without training gets, r is above `apart`
        and validation above 0.4 of that: what validation shows to be learned does not show in training. Or validation
        stands still (medians of three of six evaluations) above 0.3 of that, while the training loss, more than 1.4
        times as high and above half of it, goes on to fall by 3% in that time: what it still learns is not true of
        other examples, though it has not come as far as they have.

    Why it matters:
        A share of the training labels contradicts what the others teach. The model learns the rule first, then those
        examples by heart.

    Evidence:
        `loss` against the `val/loss` of the evaluation before, at the second evaluation and now.

    What to do:
        Look at the training examples with the largest losses; compare their labels with how those of validation were
        made. Stop early, or use a loss that is robust to wrong labels.

    When it is wrong:
        Terms that only the training loss has (penalties, auxiliary heads) and that shrink while the rest stands look
        the same. Mixed labels keep training high on purpose: validation is low then.

    References:
        Arpit et al., A closer look at memorization in deep networks, ICML 2017. Zhang et al., Understanding deep
        learning requires rethinking generalization, ICLR 2017.
    """

    code: ClassVar[str] = "DAT007"
    name: ClassVar[str] = "contrary-labels"
    onset: ClassVar[Onset] = Onset.BACKDATED
    needs: ClassVar[tuple[str, ...]] = ("loss", "val/loss")
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.LABEL_NOISE: For("what is learned shows in validation, not in training"),
        Cause.UNDERFITTING: Against("the rule was learned, and training labels contradict it"),
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
        before = state.evaluations.num
        seen = state.evaluations.noted(look.scene)
        state = state._replace(evaluations=seen)
        if seen.num == before or seen.num < 2:
            return state, ()
        training, validation = seen.trainings[-1], seen.validations[-2]
        ratio = training / validation if validation > 0 else math.nan
        if seen.num == 2:
            state = state._replace(first=ratio)
        picture = look.picture
        if seen.num < self.least or picture.num_losses < 200 or not has_level(look):
            return state, ()
        reference = untrained(picture)
        error = picture.loss_scale / math.sqrt(min(seen.steps[-1] - seen.steps[-2], 50))
        if not (ratio > self.opened * max(state.first, 1.0) and training > validation + 3 * error):
            return state, ()
        settled = training > max(self.high * reference, 0.95 * seen.trainings[-4]) and ratio > self.apart
        settled = settled and min(seen.validations[-2:]) > 0.4 * reference
        if not (settled or _is_learned_by_heart(seen, reference)):
            return state, ()
        message = (
            f"training loss {training:.4g} is {ratio:.3g} times the validation loss of the evaluation before, at the "
            f"second evaluation it was {state.first:.3g} times: what is learned elsewhere does not hold in training"
        )
        evidence = (
            Evidence(tag="loss", step=look.scene.step, value=training, expected=validation),
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
