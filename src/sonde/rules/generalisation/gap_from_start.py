"""GEN003 gap-from-start."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import amount
from sonde.rules.history.evaluations import Evaluations
from sonde.rules.history.level import has_level, untrained
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Onset, Severity, Sighting, When

_RECENT = 10


class GapFromStartState(NamedTuple):
    """How many evaluations there were, and the last losses before the first of them."""

    num: int = 0
    recent: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class GapFromStart:
    """The validation loss disagrees with the training loss from the first evaluation on, or jumps about.

    What it detects:
        - Apart from the start: at each of the first `least` evaluations the validation loss was more than `factor`
          times the training loss, and above it by a tenth of an untrained model's loss. Such a gap does not come from
          learning by heart.
        - Erratic: the median change from one evaluation to the next is above `jump` (as a logarithm), up about as often
          as down, while the training loss falls.
        - Warning, judged once after `judged` losses, if the training loss is half of an untrained model's or less:
          validation shows less than half of what training learned, and fell by less than a quarter of what training
          fell (as logarithms).
        - Warning, judged likewise: the losses are in other units. Validation is more than `units` times the training
          loss, by the same factor each time (within 30%), below an untrained model's loss, and falls with the training
          loss.
        - Warning at the first evaluation of all, after `soon` losses or more, of a model with a batch norm (or of which
          nothing is known): training is below 0.4 of an untrained
          model's loss by the mean of the last ten losses, validation is more than `plain` times as large, and shows
          less than half of what training learned.
        - Information: all other cases.

    Why it matters:
        The two modes or the two data sets differ: dropout or batch statistics in evaluation, running statistics that
        lag behind, or other preprocessing.

    Evidence:
        `val/loss` against the training `loss` of the same time.

    What to do:
        - Evaluate one training batch in both modes.
        - Check `model.eval()`, batch norm's momentum, and the preprocessing.
        - Check that both losses are means over the same things: padding that only one of them masks, `reduction`.

    When it is wrong:
        - Validation data may be harder by design (another domain), or easier training data may (no augmentation).
        - If the first evaluation comes after many epochs over few examples, the gap is plain overfitting.
        - Running statistics settle late, so the first evaluations may disagree in a healthy run.

    References:
        Ioffe and Szegedy, Batch normalization, ICML 2015 (inference by running statistics).
    """

    code: ClassVar[str] = "GEN003"
    name: ClassVar[str] = "gap-from-start"
    onset: ClassVar[Onset] = Onset.BACKDATED
    needs: ClassVar[tuple[str, ...]] = ("loss", "val/loss")
    reads: ClassVar[tuple[str, ...]] = ("val/loss",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.WRONG_LOSS_REDUCTION: For("the two losses differ by a steady factor", when=When.ALARM),
        Cause.TRAIN_EVAL_MISMATCH: (For("validation disagrees from the first evaluation on"), For(when=When.ALARM)),
        Cause.BATCHNORM_SMALL_BATCH: For("running statistics may disagree with those of batches"),
        Cause.TRAIN_MODE_IN_EVALUATION: For("validation is noisy or bad from the start"),
        Cause.MISSING_LR_DECAY: For("validation jumps about with the weights"),
        Cause.OVERFITTING: Against("the gap was there from the start"),
        Cause.DATA_DRIFT: Against("validation disagreed before the data changed", when=When.FIRST),
    }
    quiet_steps: ClassVar[int] = 10_000

    least: int = 3
    factor: float = 1.5
    jump: float = 0.25
    units: float = 3.0
    judged: int = 100
    plain: float = 5.0
    soon: int = 60

    def init(self) -> GapFromStartState:
        """Before the first step."""
        return GapFromStartState()

    def waits(self, state: GapFromStartState) -> bool:
        """Whether the first evaluation is still to come."""
        return not state.num

    def step(self, known: GapFromStartState, look: Look) -> tuple[GapFromStartState, Sequence[Sighting]]:
        """Look at one more loss before the first evaluation, and at evaluations."""
        loss, state = look.view.value("loss"), look.run.evaluations
        recent = (*known.recent, loss)[-_RECENT:]
        if state.num == known.num:
            return GapFromStartState(0, recent) if not state.num and math.isfinite(loss) else known, ()
        known = GapFromStartState(state.num)
        if state.num == 1 and self._is_plain(state, look, recent):
            shown = state._replace(trainings=(float(np.nanmean(recent)),))
            return known, (self._sighting("they are far apart at the first evaluation", shown, look, Severity.WARNING),)
        if state.num < self.least:
            return known, ()
        validations, trainings = np.array(state.validations), np.array(state.trainings)
        floor = 0.1 * untrained(look.run)
        above = (validations > self.factor * trainings) & (validations - trainings > floor)
        now = look.run.num_losses
        just = now >= self.judged and (state.num == self.least or now - int(np.diff(state.steps[-2:])[0]) < self.judged)
        if above.all() and (state.num == self.least or just):
            severity = self._severity(state, look) if just else Severity.INFO
            return known, (self._sighting("they are apart from the first evaluation on", state, look, severity),)
        erratic = False
        if state.num >= 6 and validations.min() > 0:
            moves = np.diff(np.log(validations[-8:]))
            both_ways = 0.3 <= np.mean(moves > 0) <= 0.7
            large = np.median(np.abs(moves)) > self.jump and float(np.ptp(validations[-8:])) > floor
            erratic = bool(both_ways and large and trainings[-1] < trainings[-8:][0])
        return known, (self._sighting("validation jumps up and down", state, look),) if erratic else ()

    def _is_plain(self, state: Evaluations, look: Look, recent: tuple[float, ...]) -> bool:
        """Whether the gap of the first evaluation is too large for statistics that have yet to settle."""
        model = look.view.kinds.model
        if look.run.num_losses < self.soon or not has_level(look) or (model and not model.is_batch_normed):
            return False
        training, validation = float(np.nanmean(recent)), state.first
        reference = float(np.fmax(untrained(look.run), state.start))
        apart = reference - validation < 0.5 * (reference - training)
        return 0 < training < 0.4 * reference and validation > self.plain * training and apart

    def _severity(self, state: Evaluations, look: Look) -> Severity:
        """Of a gap that was there at all evaluations so far."""
        validations, trainings = np.array(state.validations), np.array(state.trainings)
        reference = float(np.fmax(untrained(look.run), state.start))
        learned = reference - trainings[-1]
        if not (has_level(look) and learned >= 0.5 * reference):
            return Severity.INFO
        if not min(trainings.min(), validations.min()) > 0:
            return Severity.INFO
        fell, fell_there = np.log(trainings[0] / trainings[-1]), np.log(validations[0] / validations[-1])
        apart = reference - validations[-1] < 0.5 * learned and fell_there < 0.25 * fell
        ratios = validations / trainings
        in_units = ratios.min() > self.units and np.abs(np.log(ratios / ratios[0])).max() < np.log(1.3)
        in_units = in_units and validations.max() < reference and min(fell, fell_there) > 0.05
        return Severity.WARNING if apart or in_units else Severity.INFO

    def _sighting(self, how: str, state: Evaluations, look: Look, severity: Severity = Severity.INFO) -> Sighting:
        validation, training = state.validations[-1], state.trainings[-1]
        message = f"the validation loss is {amount(validation)} and the training loss {amount(training)}: {how}"
        evidence = (
            Evidence(tag="val/loss", step=look.view.step, value=validation, expected=training),
            Evidence(tag="loss", step=look.view.step, value=training),
        )
        return Sighting(severity, message, evidence=evidence, since=state.steps[0])
