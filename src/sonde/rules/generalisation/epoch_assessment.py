"""GEN004 epoch-assessment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sonde.core.quantities import share as percent
from sonde.rules.history.assessment import Assessment, assess
from sonde.rules.history.epochs import Epochs
from sonde.rules.rule import Cause, Claims, Evidence, For, Look, Severity, Sighting

_CAUSES = {
    "overfitting": "validation rises while training falls",
    "diverging": "the training loss is above its first value",
    "underfitting": "both losses are high and fall slowly",
    "plateau": "validation has stood still for several epochs",
    "slowing": "validation hardly improves",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class EpochAssessment:
    """The verdict on the epochs so far is not "healthy".

    What it detects:
        - It is judged after each epoch from the epoch `least` on. If no epochs are recorded, each evaluation counts as
          one.
        - *slowing*: the validation loss improves by less than `least_improvement`.
        - *plateau*: the validation loss changes by less than `least_improvement` in `patience` epochs in a row.
        - *overfitting*: the validation loss is above its best while the training loss still falls, and the gap is above
          `widest_gap`, or validation is 10% above its best.
        - *underfitting*: from three epochs on, the validation loss has come down by less than a quarter, the last epoch
          brought less than 5%, and the gap is below 10%.
        - *diverging*: the training loss is above its first value, and the training or the validation loss is by more
          than 10%.
        - After the epochs in `rate_epochs`, and after every epoch that follows them, the message also says whether the
          learning rate moved the losses.
        - The last improvement is called poor below `least_improvement`, acceptable up to `good_improvement`, and good
          above.
        - Always information. GEN001, GEN002, LOS003 and LOS004 raise the alarms, each with a test against noise.

    Why it matters:
        It is the summary that one would make by eye after each epoch.

    Evidence:
        `val/loss` now and one epoch before, and the training `loss`. The numbers are also recorded:
        `evaluation/improvement_rate`, `evaluation/train_val_gap` and `evaluation/plateau_detected`.

    What to do:
        - Overfitting: regularise, or stop.
        - Underfitting: raise the learning rate or the capacity.
        - Slowing or plateau: decay the learning rate, or stop if the loss is good enough.
        - Diverging: lower the learning rate.

    When it is wrong:
        - A run that has converged is slow too.
        - Evaluations a few steps apart differ by less than 1% in any run.

    References:
        Prechelt, Early stopping: but when?, 1998.
    """

    code: ClassVar[str] = "GEN004"
    name: ClassVar[str] = "epoch-assessment"
    needs: ClassVar[tuple[str, ...]] = ("loss", "val/loss")
    reads: ClassVar[tuple[str, ...]] = ("epoch", "val/loss")
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.OVERFITTING: For(),
        Cause.UNDERFITTING: For(),
        Cause.PLATEAU: For(),
    }
    quiet_steps: ClassVar[int] = 10_000

    least: int = 2
    least_improvement: float = 0.01
    widest_gap: float = 0.3
    patience: int = 3
    rate_epochs: tuple[int, ...] = (2, 3)
    good_improvement: float = 0.05

    def init(self) -> tuple[()]:
        """Nothing: the run summary has the epochs."""
        return ()

    def assessed(self, epochs: Epochs) -> Assessment:
        """What the epochs so far say, by this rule's thresholds; there must be one."""
        return assess(
            epochs.ended.validations,
            epochs.ended.trainings,
            first=(epochs.ended.first, epochs.ended.first_training),
            least_improvement=self.least_improvement,
            widest_gap=self.widest_gap,
            patience=self.patience,
            good_improvement=self.good_improvement,
        )

    def judges_rate(self, epoch: int) -> bool:
        """Whether the learning rate is validated after this epoch."""
        return epoch in self.rate_epochs or epoch > max(self.rate_epochs, default=0)

    def step(self, state: tuple[()], look: Look) -> tuple[tuple[()], Sequence[Sighting]]:
        """Look at one more step."""
        epochs = look.run.epochs
        ended = epochs.ended
        if not epochs.ended_at(look.view.step) or ended.num < self.least or look.run.is_solved or not ended.first > 0:
            return state, ()
        assessment = self.assessed(epochs)
        if assessment.verdict not in _CAUSES:
            return state, ()
        rate = (
            f"; learning rate {assessment.learning_rate.replace('-', ' ')}" if self.judges_rate(epochs.number) else ""
        )
        moved = f"{'up' if assessment.improvement_rate < 0 else 'down'} by {percent(abs(assessment.improvement_rate))}"
        message = (
            f"{assessment.verdict}: {_CAUSES[assessment.verdict]} (validation loss {moved} in the last epoch, "
            f"{assessment.progress} progress; gap to training {percent(assessment.gap)}{rate})"
        )
        evidence = (
            Evidence(tag="val/loss", step=look.view.step, value=ended.validations[-1], expected=ended.validations[-2]),
            Evidence(tag="loss", step=look.view.step, value=ended.trainings[-1]),
        )
        return state, (Sighting(Severity.INFO, message, evidence=evidence),)
