"""WGT010 weights-start-small."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import amount, share
from sonde.rules.history.new_weights import LATEST
from sonde.rules.history.progress import is_stuck
from sonde.rules.rule import Against, Cause, Claims, For, Look, Onset, Severity, Sighting, When
from sonde.rules.weights.weights_start_large import gains
from sonde.signals.medians import middle


class WeightsStartSmallState(NamedTuple):
    """The gains that are too small, of how many layers, and whether all is said."""

    small: tuple[tuple[str, float], ...] = ()
    num: int = 0
    is_over: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightsStartSmall:
    """The first weights are many times as small as any usual initialisation makes them.

    What it detects:
        - The gain of a linear or convolutional layer is the RMS of its first weights times the root of the number of
          values that each output sums up: 0.6 by torch's default.
        - The gain is below `gain` in at least half of the layers that look newly made. This is information.
        - It is a warning if the loss is stuck, which can be said from 40 losses to `latest` steps.

    Why it matters:
        Every layer takes the signal and the gradient down by its gain: nothing of the input arrives at the end, and
        nothing of the loss at the beginning.

    Evidence:
        `weight/rms@…` at the first measurement.

    What to do:
        Use torch's default initialisation, or He's for ReLU-like and Xavier's for tanh-like functions.

    When it is wrong:
        - Where each layer is normalised, its weights may have any size.

    References:
        Glorot and Bengio, Understanding the difficulty of training deep feedforward neural networks, AISTATS 2010.
    """

    code: ClassVar[str] = "WGT010"
    name: ClassVar[str] = "weights-start-small"
    onset: ClassVar[Onset] = Onset.BACKDATED
    needs: ClassVar[tuple[str, ...]] = ("weight/rms@",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.BAD_INITIALISATION: (
            For("the first weights are far too small", weight=2.0),
            For("nothing gets through the small first weights", when=When.ALARM, weight=2.0),
        ),
        Cause.DEAD_UNITS: Against("small first weights explain the silence"),
        Cause.VANISHING_GRADIENTS: Against("small first weights explain the small gradients"),
        Cause.LR_TOO_LOW: Against("small first weights explain the small gradients"),
    }
    quiet_steps: ClassVar[int] = 200

    gain: float = 0.05
    latest: int = 200

    def init(self) -> WeightsStartSmallState:
        """Before the first step."""
        return WeightsStartSmallState()

    def step(self, state: WeightsStartSmallState, look: Look) -> tuple[WeightsStartSmallState, Sequence[Sighting]]:
        """Look at the first weights, and then at the loss."""
        step = look.view.step
        if state.is_over:
            return state, ()
        if not state.num:
            found = gains(look)
            small = tuple((name, gain) for name, gain in found.items() if gain < self.gain)
            state = WeightsStartSmallState(small, len(found), 2 * len(small) < max(len(found), step > LATEST))
        if not state.small or state.is_over:
            return state, ()
        typical = middle([gain for _, gain in state.small])
        message = (
            f"{share(len(state.small) / state.num)} of the layers began with too small weights: their gain is "
            f"{amount(typical)} (median), where 0.6 to 1.4 is usual"
        )
        name, gain = min(state.small, key=lambda one: one[1])
        severity = Severity.WARNING if is_stuck(look.run, soon=True) else Severity.INFO
        evidence = (look.evidence(f"weight/rms@{name}", gain, 0.6),)
        names = tuple(name for name, _ in state.small)
        is_over = severity is Severity.WARNING or step >= self.latest
        return state._replace(is_over=is_over), (Sighting(severity, message, names, evidence, since=0),)
