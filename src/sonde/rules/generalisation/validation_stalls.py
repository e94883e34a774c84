"""GEN005 validation-stalls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sonde.rules.generalisation.assessment import assess
from sonde.rules.generalisation.epochs import Epochs
from sonde.rules.levels import has_level
from sonde.rules.rule import Cause, Claims, Evidence, For, Look, Severity, Sighting


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidationStalls:
    """Validation hardly improves from one epoch to the next any more, and neither does training.

    What it detects:
        From `least` epochs on (evaluations, where no epochs are recorded), the last one brought validation less than
        `least_improvement` and training less than 5%, while neither overfits, underfits or diverges: it is slowing.
        `patience` such changes of validation in a row are a plateau. Information only: LOS005 raises the alarm, by a
        test of the training losses against their noise.

    Why it matters:
        Epochs cost as much here as those that brought something.

    Evidence:
        `val/loss` now and an epoch before, the training `loss` of both.

    What to do:
        Halve or decay the learning rate; stop where what is left is not worth an epoch.

    When it is wrong:
        A converged run stands still too, and that is success. Evaluations a few steps apart differ little in any run.

    References:
        Prechelt, Early stopping: but when?, 1998.
    """

    code: ClassVar[str] = "GEN005"
    name: ClassVar[str] = "validation-stalls"
    needs: ClassVar[tuple[str, ...]] = ("loss", "val/loss")
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.PLATEAU: For("validation has all but stopped from epoch to epoch"),
        Cause.LABEL_NOISE: For("validation has stopped"),
        Cause.INSUFFICIENT_CAPACITY: For("validation has stopped"),
    }
    quiet_steps: ClassVar[int] = 10_000
    guide: ClassVar[str] = "loss-not-falling"

    least: int = 4
    least_improvement: float = 0.01
    patience: int = 3

    def init(self) -> Epochs:
        """Before the first step."""
        return Epochs()

    def step(self, state: Epochs, look: Look) -> tuple[Epochs, Sequence[Sighting]]:
        """Look at one more step."""
        state = state.noted(look.scene)
        ended = state.ended
        if not state.ended_at(look.scene.step) or ended.num < self.least:
            return state, ()
        if look.picture.is_solved or not has_level(look) or not min(ended.trainings) > 0:
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
            f" (less than {100 * self.least_improvement:.3g}% apart for {self.patience} epochs)"
            if found.plateau
            else ""
        )
        message = (
            f"{found.verdict}: validation loss {ended.validations[-1]:.4g} after {ended.validations[-2]:.4g} an epoch "
            f"before{lasting}; training loss {training:.4g} after {before:.4g}, gap {found.gap:.0%}"
        )
        evidence = (
            Evidence(tag="val/loss", step=look.scene.step, value=ended.validations[-1], expected=ended.validations[-2]),
            Evidence(tag="loss", step=look.scene.step, value=training, expected=before),
        )
        return state, (Sighting(Severity.INFO, message, evidence=evidence, since=ended.steps[-2]),)
