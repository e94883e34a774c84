"""GEN005 validation-stalls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sonde.core.quantities import amount, count
from sonde.core.quantities import share as percent
from sonde.rules.history.assessment import assess
from sonde.rules.history.level import has_level
from sonde.rules.rule import Cause, Claims, Evidence, For, Look, Severity, Sighting


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidationStalls:
    """The validation loss hardly improves from one epoch to the next, and neither does the training loss.

    What it detects:
        - It is judged after each epoch from the epoch `least` on. If no epochs are recorded, each evaluation counts as
          one.
        - *slowing*: the last epoch improved the validation loss by less than `least_improvement` and the training loss
          by less than 5%, and the run neither overfits, underfits nor diverges.
        - *plateau*: the validation loss changed by less than `least_improvement` in `patience` epochs in a row.
        - Always information. LOS005 raises the alarm, by a test of the training losses against their noise.

    Why it matters:
        These epochs cost as much as the epochs that brought something.

    Evidence:
        `val/loss` now and one epoch before, and the training `loss` of both.

    What to do:
        - Halve or decay the learning rate.
        - Stop if the gain that is left is not worth an epoch.

    When it is wrong:
        - A run that has converged stands still too, and that is success.
        - Evaluations a few steps apart differ little in any run.

    References:
        Prechelt, Early stopping: but when?, 1998.
    """

    code: ClassVar[str] = "GEN005"
    name: ClassVar[str] = "validation-stalls"
    needs: ClassVar[tuple[str, ...]] = ("loss", "val/loss")
    reads: ClassVar[tuple[str, ...]] = ("epoch", "val/loss")
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.PLATEAU: For("validation hardly changes from epoch to epoch"),
        Cause.LABEL_NOISE: For("validation has stopped"),
        Cause.INSUFFICIENT_CAPACITY: For("validation has stopped"),
    }
    quiet_steps: ClassVar[int] = 10_000
    guide: ClassVar[str] = "loss-not-falling"

    least: int = 4
    least_improvement: float = 0.01
    patience: int = 3

    def init(self) -> tuple[()]:
        """Nothing: the run summary has the epochs."""
        return ()

    def step(self, state: tuple[()], look: Look) -> tuple[tuple[()], Sequence[Sighting]]:
        """Look at one more step."""
        ended = look.run.epochs.ended
        if not look.run.epochs.ended_at(look.view.step) or ended.num < self.least:
            return state, ()
        if look.run.is_solved or not has_level(look) or not min(ended.trainings) > 0:
            return state, ()
        found = assess(
            ended.validations,
            ended.trainings,
            first=(ended.first, ended.first_training),
            least_improvement=self.least_improvement,
            patience=self.patience,
        )
        before, training = ended.trainings[-2:]
        if found.verdict not in ("slowing", "plateau") or (before - training) / before > 0.05:
            return state, ()
        lasting = (
            f"; validation has changed by less than {percent(self.least_improvement)} in each of the last "
            f"{count(self.patience, 'epoch')}"
            if found.plateau
            else ""
        )
        message = (
            f"{found.verdict}: in the last epoch the validation loss {_moved(*ended.validations[-2:])} "
            f"and the training loss {_moved(before, training)}{lasting}"
        )
        evidence = (
            Evidence(tag="val/loss", step=look.view.step, value=ended.validations[-1], expected=ended.validations[-2]),
            Evidence(tag="loss", step=look.view.step, value=training, expected=before),
        )
        return state, (Sighting(Severity.INFO, message, evidence=evidence, since=ended.steps[-2]),)


def _moved(before: float, now: float) -> str:
    return f"{'rose' if now > before else 'fell'} by {percent(abs((now - before) / before))} to {amount(now)}"
