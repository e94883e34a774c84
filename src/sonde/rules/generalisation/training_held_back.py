"""GEN006 training-held-back."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sonde.core.quantities import amount
from sonde.core.quantities import share as percent
from sonde.rules.history.evaluations import Evaluations
from sonde.rules.history.level import has_level, untrained
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Onset, Severity, Sighting


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingHeldBack:
    """The training loss stays above the validation loss of the evaluation before, although it has fallen since.

    What it detects:
        - After `least` evaluations and 200 losses, the training loss is above the validation loss of the evaluation
          *before* by three standard errors.
        - And one of two: the training loss is above it by 5% and above `held` of an untrained model's loss, and was not
          above validation at the first evaluation. The model that is evaluated is better than the model that is
          trained.
        - Or validation stands still (medians of three of the last six evaluations) above `stands` of an untrained
          model's loss, and the training loss is 40% above validation and above `high` of an untrained model's loss. The
          training labels are worse than those of validation.
        - Always a warning.

    Why it matters:
        Dropout, augmentation or wrong labels, which only training has, cost most of what could be learned.

    Evidence:
        `loss` against the `val/loss` of the evaluation before, and that against what guessing gives.

    What to do:
        - Use less dropout and less augmentation.
        - Look at the labels of some training examples.

    When it is wrong:
        - Mixed or smoothed labels and heavy augmentation hold training back on purpose.
        - A validation set that is easier than the training data looks the same if training was not above it at the
          first evaluation.

    References:
        Srivastava et al., Dropout, JMLR 2014 (training is noisier than the network that is tested). Goodfellow, Bengio
        and Courville, Deep learning, 2016, chapter 11.
    """

    code: ClassVar[str] = "GEN006"
    name: ClassVar[str] = "training-held-back"
    onset: ClassVar[Onset] = Onset.BACKDATED
    needs: ClassVar[tuple[str, ...]] = ("loss", "val/loss")
    reads: ClassVar[tuple[str, ...]] = ("val/loss",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.UNDERFITTING: For("something that only training has holds the model back"),
        Cause.LABEL_NOISE: For("training stays above validation"),
        Cause.OVERFITTING: Against("training itself has not come far"),
        Cause.PLATEAU: Against("the loss never came down far"),
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

    def init(self) -> int:
        """Before the first evaluation."""
        return 0

    def step(self, num: int, look: Look) -> tuple[int, Sequence[Sighting]]:
        """Look at one more evaluation."""
        state = look.run.evaluations
        if state.num == num or state.num < self.least or not has_level(look):
            return state.num, ()
        run = look.run
        validation, training, reference = state.validations[-2], state.trainings[-1], untrained(run)
        error = run.loss_scale / math.sqrt(min(state.steps[-1] - state.steps[-2], 50))
        if not (run.num_losses >= 200 and training > validation + 3 * error):
            return state.num, ()
        late = training > max(self.held * reference, validation / 0.95) and state.first > 0.95 * state.first_training
        if not (late or self._stands(state, reference)):
            return state.num, ()
        message = (
            f"the training loss of {amount(training)}, {percent(training / reference)} of an untrained model's, stays "
            f"above the validation loss of the evaluation before ({amount(validation)})"
        )
        evidence = (
            Evidence(tag="loss", step=look.view.step, value=training, expected=validation),
            Evidence(tag="val/loss", step=state.steps[-2], value=validation, expected=reference),
        )
        return state.num, (Sighting(Severity.WARNING, message, evidence=evidence, since=state.steps[0]),)

    def _stands(self, state: Evaluations, reference: float) -> bool:
        """Whether validation stands still on a high level, and training far above it."""
        if len(state.validations) < 6:
            return False
        older, newer = float(np.median(state.validations[-6:-3])), float(np.median(state.validations[-3:]))
        stands = newer > max(0.97 * older, self.stands * reference)
        return stands and state.trainings[-1] > max(self.high * reference, 1.4 * newer)
