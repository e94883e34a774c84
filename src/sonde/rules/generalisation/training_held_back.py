"""GEN006 training-held-back."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sonde.rules.generalisation.evaluations import Evaluations
from sonde.rules.levels import has_level, untrained
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Onset, Severity, Sighting


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingHeldBack:
    """Training stays above the validation of the evaluation before, although it has fallen since.

    What it detects:
        After `least` evaluations and 200 steps the training loss is above the validation loss of the evaluation
        *before* by three standard errors, and one of two things besides. It is above it by 5% and still above `held` of
        what a model without training gets, which it was not at the first evaluation: the model that is evaluated is
        better than the one that is trained. Or it is above `high` and 40% above validation, which stands still (medians
        of three of at least six evaluations) at `stands` or more: training labels are worse than those of validation.

    Why it matters:
        Something that is there in training only costs most of what could be learned.

    Evidence:
        `loss` against the `val/loss` of the evaluation before, and that against what guessing gives.

    What to do:
        Less dropout and augmentation, and a look at some training labels.

    When it is wrong:
        Mixed or smoothed labels and heavy augmentation hold training back on purpose. A validation set that is easier
        than the training data is taken for it where training was not above it at the first evaluation.

    References:
        Srivastava et al., Dropout, JMLR 2014 (training is noisier than the network that is tested). Goodfellow, Bengio
        and Courville, Deep learning, 2016, chapter 11.
    """

    code: ClassVar[str] = "GEN006"
    name: ClassVar[str] = "training-held-back"
    onset: ClassVar[Onset] = Onset.BACKDATED
    needs: ClassVar[tuple[str, ...]] = ("loss", "val/loss")
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.UNDERFITTING: For("what is there in training only holds it back"),
        Cause.LABEL_NOISE: For("training stays above validation"),
        Cause.OVERFITTING: Against("training itself has not come far"),
        Cause.PLATEAU: Against("it never came down far"),
        Cause.SATURATED_UNITS: Against("flat units would hold evaluation back as much as training"),
        Cause.INSUFFICIENT_CAPACITY: Against("the same model does better in evaluation"),
        Cause.DEAD_UNITS: Against("silent units would hold evaluation back as much as training"),
    }
    quiet_steps: ClassVar[int] = 10_000
    guide: ClassVar[str] = "loss-not-falling"

    least: int = 4
    high: float = 0.6
    held: float = 0.75
    stands: float = 0.4

    def init(self) -> Evaluations:
        """Before the first step."""
        return Evaluations()

    def step(self, state: Evaluations, look: Look) -> tuple[Evaluations, Sequence[Sighting]]:
        """Look at one more step."""
        before = state.num
        state = state.noted(look.scene)
        if state.num == before or state.num < self.least or not has_level(look):
            return state, ()
        picture = look.picture
        validation, training, reference = state.validations[-2], state.trainings[-1], untrained(picture)
        error = picture.loss_scale / math.sqrt(min(state.steps[-1] - state.steps[-2], 50))
        if not (picture.num_losses >= 200 and training > validation + 3 * error):
            return state, ()
        late = training > max(self.held * reference, validation / 0.95) and state.first > 0.95 * state.first_training
        if not (late or self._stands(state, reference)):
            return state, ()
        message = (
            f"training loss {training:.4g}, {training / reference:.0%} of what it is without training, stays above the "
            f"validation loss of the evaluation before ({validation:.4g}): what holds training back is not there"
        )
        evidence = (
            Evidence(tag="loss", step=look.scene.step, value=training, expected=validation),
            Evidence(tag="val/loss", step=state.steps[-2], value=validation, expected=reference),
        )
        return state, (Sighting(Severity.WARNING, message, evidence=evidence, since=state.steps[0]),)

    def _stands(self, state: Evaluations, reference: float) -> bool:
        """Whether validation stands still on a high level, and training far above it."""
        if len(state.validations) < 6:
            return False
        older, newer = float(np.median(state.validations[-6:-3])), float(np.median(state.validations[-3:]))
        stands = newer > max(0.97 * older, self.stands * reference)
        return stands and state.trainings[-1] > max(self.high * reference, 1.4 * newer)
