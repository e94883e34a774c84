"""DAT003 unnormalised-inputs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sonde.core.quantities import amount
from sonde.rules.history.progress import is_hurt
from sonde.rules.rule import Against, Cause, Claims, For, Look, Severity, Sighting, When
from sonde.rules.sticky_fact import StickyFact, kept


@dataclass(frozen=True, kw_only=True, slots=True)
class UnnormalisedInputs:
    """The first layer gets features far from mean 0 and deviation 1, or of very different scales.

    What it detects:
        - It looks at the inputs of the model's first linear or convolutional layer, after any layer that normalises
          them.
        - A feature has a standard deviation above `most_std`.
        - Or the deviations of the features differ by more than `most_spread` times, and the largest is above
          `least_std`. Below that some features are merely quiet: rare categories, black borders.
        - Or a mean is more than `most_offset` times the largest deviation away from 0.
        - Warning: the loss is not finite, is stuck (judged from 40 losses on), or has risen far above its start.
        - Warning: after `patience` losses, unless the loss is nearly gone.
        - Information: before that.

    Why it matters:
        The curvature of the first layer goes with the square of the inputs' scale. A rate that is stable for the
        largest feature is far too low for the other features, and at the usual rates the training diverges.

    Evidence:
        The fact `input-scale` with deviation, spread and offset; `batch/scale_spread@…`, `batch/feature_std_max@…`.

    What to do:
        - Bring each feature to mean 0 and deviation 1, by the statistics of the training set.
        - Or begin the model with a `BatchNorm`.

    When it is wrong:
        - The first layer may have been initialised for such inputs.
        - Sonde takes the layer that was made first for the layer that is called first.

    References:
        LeCun et al., Efficient BackProp, 1998, section 4.3.
    """

    code: ClassVar[str] = "DAT003"
    name: ClassVar[str] = "unnormalised-inputs"
    needs: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[str, ...]] = ()
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.UNNORMALISED_INPUTS: (For("the inputs of the first layer are out of scale"), For(when=When.ALARM)),
        Cause.DEAD_UNITS: Against("the inputs' scale may have killed the units"),
        Cause.BAD_INITIALISATION: Against("the inputs' scale explains the bad start"),
        Cause.WARMUP_TOO_SHORT: Against("the inputs' scale explains too large steps"),
        Cause.ACTIVATION_EXPLOSION: Against("the inputs' scale explains large activations"),
        Cause.EXPLODING_GRADIENTS: Against("the inputs' scale explains large gradients"),
        Cause.LR_TOO_HIGH: Against("the inputs' scale explains too large steps"),
    }
    quiet_steps: ClassVar[int] = 100

    most_std: float = 20.0
    least_std: float = 3.0
    most_spread: float = 100.0
    most_offset: float = 20.0
    patience: int = 50

    def init(self) -> StickyFact:
        """Before the first step."""
        return StickyFact()

    def step(self, state: StickyFact, look: Look) -> tuple[StickyFact, Sequence[Sighting]]:
        """Look at the facts of one more step."""
        state = kept(state, look, "input-scale", accepts=self._is_off)  # each of several models has its own
        if state.since < 0:
            return state, ()
        blown = "loss" in look.view and not math.isfinite(look.run.loss)  # it may take fewer than ten steps
        run = look.run
        lasts = run.num_losses >= self.patience and not run.is_solved
        severity = Severity.WARNING if blown or lasts or is_hurt(run, soon=True) else Severity.INFO
        layer = look.view.kinds.module(state.where[0]) if state.where else "the first layer"
        message = f"{layer} gets {' and '.join(self._reasons(state))}"
        return state, (Sighting(severity, message, state.where, since=state.since),)

    def _is_off(self, fact: StickyFact) -> bool:
        return bool(self._reasons(fact))

    def _reasons(self, fact: StickyFact) -> list[str]:
        spread, offset = fact.get("spread"), fact.get("offset") / fact.value if fact.value > 0 else float("nan")
        reasons = []
        if spread > self.most_spread and fact.value > self.least_std:
            reasons.append(f"features whose standard deviations differ by a factor of {amount(spread)}")
        if fact.value > self.most_std:
            reasons.append(f"a feature with a standard deviation of {amount(fact.value)}")
        if offset > self.most_offset:
            reasons.append(f"a mean that is {amount(offset)} standard deviations away from 0")
        return reasons
