"""GEN004 epoch-assessment."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sonde.core.causes import Cause
from sonde.core.findings import Evidence, Severity
from sonde.rules.generalisation.assessment import assess
from sonde.rules.generalisation.evaluations import Evaluations
from sonde.rules.rule import Look, Sighting

_CAUSES = {
    "overfitting": "validation rises while training falls",
    "diverging": "both losses are above their first",
    "underfitting": "both losses are high and slow",
    "plateau": "validation has stood still for three epochs",
    "slowing": "validation hardly improves",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class EpochAssessment:
    """The verdict on the epochs so far is not "healthy".

    What it detects:
        By `assess` over all evaluations (one an epoch, or as often as they come), from `least` on: validation improves
        by less than 1% (slowing), three times in a row (plateau), rises while training falls with a gap above 30%
        (overfitting), has come down by less than a quarter and is slow (underfitting); and whether the learning rate
        moved anything in the first epochs. Information only: the rules GEN001, GEN002, LOS003 and LOS004 raise the
        alarms, each with its test against noise.

    Why it matters:
        It is the summary that one would make by eye after each epoch.

    Evidence:
        `val/loss` now and one evaluation before, the training `loss`.

    What to do:
        Overfitting: regularise or stop. Underfitting: raise rate or capacity. Slowing: decay the rate, or be content.

    When it is wrong:
        A converged run is slow too. Evaluations a few steps apart differ by less than 1% in any run.

    References:
        Prechelt, Early stopping: but when?, 1998.
    """

    code: ClassVar[str] = "GEN004"
    name: ClassVar[str] = "epoch-assessment"
    needs: ClassVar[tuple[str, ...]] = ("loss", "val/loss")
    causes: ClassVar[tuple[Cause, ...]] = (Cause.OVERFITTING, Cause.UNDERFITTING, Cause.LR_TOO_LOW, Cause.LR_TOO_HIGH)
    quiet_steps: ClassVar[int] = 10_000

    least: int = 2

    def init(self) -> Evaluations:
        """Before the first step."""
        return Evaluations()

    def step(self, state: Evaluations, look: Look) -> tuple[Evaluations, Sequence[Sighting]]:
        """Look at one more step."""
        before = state.num
        state = state.noted(look)
        if state.num == before or state.num < self.least or look.picture.is_solved or not state.first > 0:
            return state, ()
        assessment = assess(state.validations, state.trainings)
        if assessment.verdict not in _CAUSES:
            return state, ()
        message = (
            f"{assessment.verdict}: {_CAUSES[assessment.verdict]} ({assessment.improvement_rate:+.1%} since the last "
            f"evaluation, gap {assessment.gap:.0%}, learning rate {assessment.learning_rate})"
        )
        evidence = (
            Evidence(tag="val/loss", step=look.scene.step, value=state.validations[-1], expected=state.validations[-2]),
            Evidence(tag="loss", step=look.scene.step, value=state.trainings[-1]),
        )
        return state, (Sighting(Severity.INFO, message, evidence=evidence),)
