"""GEN001 overfitting."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sonde.core.quantities import amount
from sonde.rules.history.evaluations import Evaluations
from sonde.rules.history.level import untrained
from sonde.rules.history.turns import Turn, clear_turn
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Onset, Severity, Sighting, When

_ENOUGH = 7


@dataclass(frozen=True, kw_only=True, slots=True)
class Overfitting:
    """Validation gets worse while training goes on getting better.

    What it detects:
        - Lasting rise: the last `patience` validation losses (a quarter of all, if there are many) are above the best
          by three times the evaluations' own noise, by 2%, and by `least_rise` of an untrained model's loss. The
          training loss has fallen by 5% since the best evaluation.
        - A lasting rise is a warning from five evaluations and 30 steps on, if validation is 10% above its best, or
          exceeds the training loss by `wide` times the training loss. With such a wide gap half of `least_rise` is
          enough if validation is above 0.3 of an untrained model's loss.
        - A lasting rise is information if validation was never below an untrained model's loss by `learned`: nothing
          general was learned that could be lost.
        - Early turn, in four to eight evaluations: validation turned smoothly and rose by `early_rise`, the training
          loss fell at every evaluation, and the gap was small at first and widened every time.
        - An early turn is a warning if since the best evaluation the training loss has fallen by a quarter, and
          validation is more than twice the training loss, 3% above its best and above 0.3 of an untrained model's loss.
        - Far apart, from three evaluations on: since the best evaluation the training loss has halved, two evaluations
          or more were no better, and the last one is 2% worse. Validation is above `far` times the training loss and
          above 0.2 of an untrained model's loss, and began within 50% of the training loss. This is a warning.
        - Learned by heart, from three evaluations on: less than 0.15 of an untrained model's loss is left in training.
          Validation is above `by_heart` times the training loss and above 0.07 of an untrained model's loss, and lost
          less than 5% over the last two evaluations. It began within 50% of the training loss. This is a warning.
        - Always information with several optimisers, and if the loss has risen by something other than the optimiser's
          steps.

    Why it matters:
        After the best evaluation, the model learns its examples by heart and forgets what is general.

    Evidence:
        `val/loss` now and at its best; the training `loss` at both times.

    What to do:
        - Keep the weights of the best evaluation, or stop there.
        - Use more data or augmentation.
        - Regularise: dropout 0.1, weight decay 0.01, label smoothing 0.1.
        - Use a smaller model.

    When it is wrong:
        - The loss may rise through overconfidence while the accuracy still improves.
        - A validation set of few examples is noisy in ways that its own course does not show.

    References:
        Prechelt, Early stopping: but when?, 1998. Guo et al., On calibration of modern neural networks, ICML 2017 (loss
        against accuracy).
    """

    code: ClassVar[str] = "GEN001"
    name: ClassVar[str] = "overfitting"
    onset: ClassVar[Onset] = Onset.BACKDATED
    needs: ClassVar[tuple[str, ...]] = ("loss", "val/loss")
    reads: ClassVar[tuple[str, ...]] = ("val/loss",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.OVERFITTING: (For("validation rises while training falls"), For(when=When.ALARM)),
        Cause.MISSING_REGULARISATION: (For("validation rises while training falls"), For(when=When.ALARM)),
        Cause.LABEL_NOISE: For("wrong labels are learned by heart late"),
        Cause.INSUFFICIENT_CAPACITY: Against("the model has the capacity to learn by heart"),
        Cause.PLATEAU: Against("validation rises and does not stand still"),
        Cause.WARMUP_TOO_SHORT: Against("training went well after its first steps", when=When.ALARM),
        Cause.UNDERFITTING: Against("the model fits its examples too well, not too little"),
        Cause.LR_TOO_HIGH: Against("training went well at this rate: its loss fell", when=When.ALARM),
    }
    quiet_steps: ClassVar[int] = 10_000

    patience: int = 3
    least_rise: float = 0.03
    wide: float = 1.5
    early_rise: float = 0.02
    learned: float = 0.15
    far: float = 3.0
    by_heart: float = 5.0

    def init(self) -> int:
        """Before the first evaluation."""
        return 0

    def step(self, num: int, look: Look) -> tuple[int, Sequence[Sighting]]:
        """Look at one more evaluation."""
        state = look.run.evaluations
        if state.num == num:
            return state.num, ()
        modes = self._lasting, self._early, self._apart, self._by_heart
        found = [one for mode in modes if (one := mode(state, look))]
        if not found:
            return state.num, ()
        severity, turn = next((one for one in found if one[0].is_alarm), found[0])
        if not look.run.is_alone or look.run.is_moved:
            severity = Severity.INFO
        rose = f"rose from {amount(turn.best)} at step {turn.step:,} to {amount(turn.now)}"
        stood = f"has stood at {amount(turn.now)} since step {turn.step:,}"
        message = (
            f"the validation loss {rose if turn.now > turn.best else stood}, while the training loss fell "
            f"from {amount(turn.best_training)} to {amount(turn.training)}"
        )
        evidence = (
            Evidence(tag="val/loss", step=look.view.step, value=state.validations[-1], expected=turn.best),
            Evidence(tag="loss", step=look.view.step, value=turn.training, expected=turn.best_training),
        )
        return state.num, (Sighting(severity, message, evidence=evidence, since=turn.step),)

    def _lasting(self, state: Evaluations, look: Look) -> tuple[Severity, Turn] | None:
        """A rise beyond the noise of the evaluations."""
        late = max(self.patience, len(state.validations) // 4)
        if len(state.validations) <= late:
            return None
        latest, training = state.validations[-late:], float(np.median(state.trainings[-late:]))
        place, best = _best(state.validations[:-late], late)
        turn = Turn(state.steps[place], best, state.trainings[place], float(np.median(latest)), training)
        noise = state.noise if math.isfinite(state.noise) else 0.0
        if len(state.validations) - place >= _ENOUGH:  # the bend of the first descent is no noise
            noise = min(noise, state.noise_since(max(place - 1, 0)))
        reference = untrained(look.run)
        wide = turn.gap(state.first) > self.wide
        share = 0.5 * self.least_rise if wide and turn.now > 0.3 * reference else self.least_rise
        least = max(3 * noise, 0.02 * abs(best), share * reference if reference > 0 else 0.0)
        if not (turn.now > best + least and min(latest[-self.patience :]) > best):
            return None
        if not training < turn.best_training - 0.05 * abs(turn.best_training):
            return None
        known = math.isfinite(state.noise) and look.run.num_losses >= 30
        bad = known and (turn.now > best + 0.1 * abs(best) or wide)
        bad = bad and not best > (1 - self.learned) * reference
        return Severity.WARNING if bad else Severity.INFO, turn

    def _early(self, state: Evaluations, look: Look) -> tuple[Severity, Turn] | None:
        """A rise that few evaluations show clearly."""
        reference = max(untrained(look.run), state.first)
        turn = clear_turn(state, reference, self.early_rise)
        if turn is None:
            return None
        far = turn.training < 0.75 * turn.best_training and turn.gap(state.first) > 1
        bad = far and turn.now > max(1.03 * turn.best, 0.3 * reference)
        return Severity.WARNING if bad else Severity.INFO, turn

    def _apart(self, state: Evaluations, look: Look) -> tuple[Severity, Turn] | None:
        """A gap that few evaluations show: training has halved since validation was best."""
        validations, reference = state.validations, max(untrained(look.run), state.first)
        place = int(np.argmin(validations))
        turn = Turn(
            state.steps[place], validations[place], state.trainings[place], validations[-1], state.trainings[-1]
        )
        is_late = state.num >= 3 and len(validations) - place > 2 and turn.now > 1.02 * turn.best > 0
        is_far = turn.now > max(self.far * turn.training, 0.2 * reference) and turn.training < 0.5 * turn.best_training
        return (Severity.WARNING, turn) if is_late and is_far and _began_alike(state) else None

    def _by_heart(self, state: Evaluations, look: Look) -> tuple[Severity, Turn] | None:
        """Next to nothing is left of the training loss, and validation stands far above it."""
        if state.num < 3:
            return None
        before, now, training = state.validations[-3], state.validations[-1], state.trainings[-1]
        turn = Turn(state.steps[-3], before, state.trainings[-3], now, training)
        reference = max(untrained(look.run), state.first)
        stands = now > max(self.by_heart * training, 0.07 * reference, 0.95 * before) > 0
        return (Severity.WARNING, turn) if stands and training < 0.15 * reference and _began_alike(state) else None


def _began_alike(state: Evaluations) -> bool:
    """Whether validation was like training once: it is not where the two come from different data."""
    return state.first < 1.5 * max(state.first_training, state.start)


def _best(validations: tuple[float, ...], width: int) -> tuple[int, float]:
    """The place and height of the lowest median of so many in a row: the lowest of many noisy values is luck."""
    if len(validations) < width:
        place = int(np.argmin(validations))
        return place, validations[place]
    medians = np.median(np.lib.stride_tricks.sliding_window_view(np.array(validations), width), axis=1)
    place = int(medians.argmin())
    return place + width // 2, float(medians[place])
