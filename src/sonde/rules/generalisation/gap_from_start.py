"""GEN003 gap-from-start."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sonde.core.causes import Cause
from sonde.core.findings import Evidence, Severity
from sonde.rules.generalisation.evaluations import Evaluations
from sonde.rules.levels import untrained
from sonde.rules.rule import Look, Sighting


@dataclass(frozen=True, kw_only=True, slots=True)
class GapFromStart:
    """Validation disagrees with training from the first evaluation on, or jumps about.

    What it detects:
        At each of the first `least` evaluations validation was more than `factor` times the training loss and a tenth
        of an untrained model's loss above it: the gap did not grow by learning by heart, it was there. Or validation is
        erratic: the median move from one evaluation to the next is above `jump`, up as often as down, while the
        training loss falls. Information only.

    Why it matters:
        It speaks for a difference between the two modes or the two data sets: dropout or batch statistics in
        evaluation, stale running statistics, other preprocessing.

    Evidence:
        `val/loss` against the training `loss` of the same time.

    What to do:
        Evaluate one training batch in both modes. Check `model.eval()`, batch norm's momentum and preprocessing.

    When it is wrong:
        Validation data may be harder by design (another domain, no augmentation in training).

    References:
        Ioffe and Szegedy, Batch normalization, ICML 2015 (inference by running statistics).
    """

    code: ClassVar[str] = "GEN003"
    name: ClassVar[str] = "gap-from-start"
    needs: ClassVar[tuple[str, ...]] = ("loss", "val/loss")
    causes: ClassVar[tuple[Cause, ...]] = (
        Cause.TRAIN_EVAL_MISMATCH,
        Cause.TRAIN_MODE_IN_EVALUATION,
        Cause.BATCHNORM_SMALL_BATCH,
        Cause.DATA_DRIFT,
    )
    quiet_steps: ClassVar[int] = 10_000

    least: int = 3
    factor: float = 1.5
    jump: float = 0.25

    def init(self) -> Evaluations:
        """Before the first step."""
        return Evaluations()

    def step(self, state: Evaluations, look: Look) -> tuple[Evaluations, Sequence[Sighting]]:
        """Look at one more step."""
        before = state.num
        state = state.noted(look.scene)
        if state.num == before or state.num < self.least:
            return state, ()
        validations, trainings = np.array(state.validations), np.array(state.trainings)
        floor = 0.1 * untrained(look.picture)
        above = (validations > self.factor * trainings) & (validations - trainings > floor)
        if state.num == self.least and above.all():
            return state, (self._sighting("from the first evaluation on", state, look),)
        erratic = False
        if state.num >= 6 and validations.min() > 0:
            moves = np.diff(np.log(validations[-8:]))
            both_ways = 0.3 <= np.mean(moves > 0) <= 0.7
            large = np.median(np.abs(moves)) > self.jump and float(np.ptp(validations[-8:])) > floor
            erratic = bool(both_ways and large and trainings[-1] < trainings[-8:][0])
        return state, (self._sighting("and jumps about", state, look),) if erratic else ()

    def _sighting(self, how: str, state: Evaluations, look: Look) -> Sighting:
        validation, training = state.validations[-1], state.trainings[-1]
        message = f"validation loss {validation:.4g} against {training:.4g} in training, {how}"
        evidence = (
            Evidence(tag="val/loss", step=look.scene.step, value=validation, expected=training),
            Evidence(tag="loss", step=look.scene.step, value=training),
        )
        return Sighting(Severity.INFO, message, evidence=evidence, since=state.steps[0])
