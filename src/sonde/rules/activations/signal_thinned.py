"""ACT006 signal-thinned."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sonde.core.quantities import amount
from sonde.core.quantities import share as percent
from sonde.rules.history.level import has_level, untrained
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Onset, Severity, Sighting
from sonde.rules.step_view import StepViews


@dataclass(frozen=True, kw_only=True, slots=True)
class SignalThinned:
    """Dropout removes so much that training learns slowly, while evaluation, without dropout, is far ahead.

    What it detects:
        - At least two modules without units of their own, usually dropout, give more than `zeros` exact zeros, and pass
          less than `kept` of the values that are not zero before them.
        - It is judged at an evaluation, from the second one on and after 100 losses or more.
        - The mean training loss since the evaluation before is more than `high` of an untrained model's loss, and at
          most 1.2 times that loss.
        - The validation loss is lower than that mean by a tenth and by three standard errors.
        - Warning: all of these hold. Otherwise nothing is said: a training that makes progress may have any dropout.

    Why it matters:
        The dropout of several layers multiplies: three layers that drop three quarters each pass one value of 64.

    Evidence:
        `act/zeros@…` of the modules, `loss` and `val/loss`.

    What to do:
        - Use dropout of 0.5 or less, in fewer layers.
        - If much dropout is needed, make the model wider.

    When it is wrong:
        - Layers of experts or gates that are off on purpose give as many zeros. Evaluation is not ahead then.
        - Strong augmentation also makes the training loss higher than the validation loss.

    References:
        Srivastava et al., Dropout, JMLR 2014, section 10 (0.5 to 0.8 of hidden units are kept).
    """

    code: ClassVar[str] = "ACT006"
    name: ClassVar[str] = "signal-thinned"
    onset: ClassVar[Onset] = Onset.BACKDATED
    needs: ClassVar[tuple[str, ...]] = ("act/zeros@", "loss", "val/loss")
    reads: ClassVar[tuple[str, ...]] = ("val/loss",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.UNDERFITTING: For("most values are dropped between layers"),
        Cause.LABEL_NOISE: Against("dropout holds training back"),
        Cause.DEAD_UNITS: Against("units are dropped, not dead"),
    }
    quiet_steps: ClassVar[int] = 10_000
    guide: ClassVar[str] = "loss-not-falling"

    zeros: float = 0.8
    kept: float = 0.4
    high: float = 0.6

    def init(self) -> int:
        """Before the first evaluation."""
        return 0

    def step(self, num: int, look: Look) -> tuple[int, Sequence[Sighting]]:
        """Look at one more evaluation."""
        run, state = look.run, look.run.evaluations
        if state.num == num or state.num < 2 or run.num_losses < 100 or not has_level(look):
            return state.num, ()
        training, validation, reference = state.trainings[-1], state.validations[-1], untrained(run)
        error = run.loss_scale / math.sqrt(min(state.steps[-1] - state.steps[-2], 50))
        slow = self.high * reference < training < 1.2 * reference
        if not (slow and validation < min(0.9 * training, training - 3 * error)):
            return state.num, ()
        thin = self._thinned(look.views)
        if len(thin) < 2:
            return state.num, ()
        name = max(thin, key=lambda name: thin[name])
        message = (
            f"{percent(thin[name])} of the values behind {look.view.kinds.module(name)} are zero; the training loss "
            f"is {amount(training)}, {percent(training / reference)} of an untrained model's, and the validation loss, "
            f"without dropout, is {amount(validation)}"
        )
        evidence = (
            *(Evidence(tag=f"act/zeros@{name}", step=look.view.step, value=value) for name, value in thin.items()),
            Evidence(tag="loss", step=look.view.step, value=training, expected=validation),
        )
        return state.num, (Sighting(Severity.WARNING, message, where=tuple(thin), evidence=evidence[-6:], since=0),)

    def _thinned(self, views: StepViews) -> dict[str, float]:
        """The modules that drop most of what they get, with their share of zeros."""
        zeros, units = views.latest("act/zeros"), views.latest("act/constant")
        if zeros is None:
            return {}
        with_units = () if units is None else units.names
        found: dict[str, float] = {}
        given = 0.0
        for name, value in zip(zeros.names, zeros.values.tolist(), strict=True):
            if name in with_units:
                given = value
            elif value > self.zeros and 1 - value < self.kept * (1 - given):
                found[name] = value
        return found
