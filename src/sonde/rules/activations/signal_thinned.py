"""ACT006 signal-thinned."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sonde.rules.generalisation.evaluations import Evaluations
from sonde.rules.levels import has_level, untrained
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Onset, Severity, Sighting
from sonde.rules.scene import Scenes


@dataclass(frozen=True, kw_only=True, slots=True)
class SignalThinned:
    """Dropout lets so little through that training gets on slowly, while evaluation, without it, is far ahead.

    What it detects:
        Behind two modules or more that have no units of their own (dropout, as a rule) more than `zeros` of the values
        are exactly zero, and they keep less than `kept` of those that are not zero before them. It is a warning at an
        evaluation, from the second and 100 losses on, where the mean training loss since the evaluation before is still
        `high` of what a model without training gets, or more (not above 1.2: then it is lost), and validation is below
        it by a tenth and three standard errors: nothing else differs between the two than what is switched off for
        evaluation. Else nothing is said: where training gets on, dropout may be as strong as it likes.

    Why it matters:
        What is dropped in several layers multiplies: of three quarters in each of three layers a 64th is left.

    Evidence:
        `act/zeros@…` of the modules, `loss` and `val/loss`.

    What to do:
        Dropout at 0.5 or less, in fewer layers; a wider model where much is needed.

    When it is wrong:
        Layers of some dozen experts or gates that are off on purpose have as many zeros; then evaluation is not ahead.
        Augmentation that is as strong adds to the distance.

    References:
        Srivastava et al., Dropout, JMLR 2014, section 10 (0.5 to 0.8 of hidden units are kept).
    """

    code: ClassVar[str] = "ACT006"
    name: ClassVar[str] = "signal-thinned"
    onset: ClassVar[Onset] = Onset.BACKDATED
    needs: ClassVar[tuple[str, ...]] = ("act/zeros@", "loss", "val/loss")
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.UNDERFITTING: For("most of what layers give is dropped"),
        Cause.LABEL_NOISE: Against("what is dropped holds training back"),
        Cause.DEAD_UNITS: Against("units are dropped, not dead"),
    }
    quiet_steps: ClassVar[int] = 10_000
    guide: ClassVar[str] = "loss-not-falling"

    zeros: float = 0.8
    kept: float = 0.4
    high: float = 0.6

    def init(self) -> Evaluations:
        """Before the first step."""
        return Evaluations()

    def step(self, state: Evaluations, look: Look) -> tuple[Evaluations, Sequence[Sighting]]:
        """Look at one more step."""
        before, picture = state.num, look.picture
        state = state.noted(look.scene)
        if state.num == before or state.num < 2 or picture.num_losses < 100 or not has_level(look):
            return state, ()
        training, validation, reference = state.trainings[-1], state.validations[-1], untrained(picture)
        error = picture.loss_scale / math.sqrt(min(state.steps[-1] - state.steps[-2], 50))
        slow = self.high * reference < training < 1.2 * reference
        if not (slow and validation < min(0.9 * training, training - 3 * error)):
            return state, ()
        thin = self._thinned(look.scenes)
        if len(thin) < 2:
            return state, ()
        name = max(thin, key=lambda name: thin[name])
        message = (
            f"{thin[name]:.0%} of the values behind {name} are zero; training loss {training:.4g} is "
            f"{training / reference:.0%} of what it is without training, validation (nothing dropped) {validation:.4g}"
        )
        evidence = (
            *(Evidence(tag=f"act/zeros@{name}", step=look.scene.step, value=value) for name, value in thin.items()),
            Evidence(tag="loss", step=look.scene.step, value=training, expected=validation),
        )
        return state, (Sighting(Severity.WARNING, message, where=tuple(thin), evidence=evidence[-6:], since=0),)

    def _thinned(self, scenes: Scenes) -> dict[str, float]:
        """The modules that drop most of what they get, with their share of zeros."""
        zeros, units = scenes.latest("act/zeros"), scenes.latest("act/constant")
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
