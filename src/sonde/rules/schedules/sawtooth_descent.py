"""SCH006 sawtooth-descent."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import count
from sonde.rules.history.level import has_level
from sonde.rules.rule import Cause, Claims, For, Look, Severity, Sighting
from sonde.signals.medians import middle
from sonde.signals.oscillation import Oscillation, OscillationState

_OSCILLATION = Oscillation(window=128, min_values=64)


class SawtoothDescentState(NamedTuple):
    """The last losses, smoothed over five."""

    window: OscillationState
    last: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class SawtoothDescent:
    """The loss comes down like a saw: many small falls, few large rises.

    What it detects:
        - Over 128 losses, each the median of five, the mean rise is more than three times the mean fall.
        - At least `teeth` rises are more than three mean falls.
        - It is always information.

    Why it matters:
        Something resets the progress again and again: restarts of the learning rate, ends of epochs, rare batches.

    Evidence:
        `loss`.

    What to do:
        Compare the rises with `epoch`, `lr` and `batch/*`: what has the same period is the reason.

    When it is wrong:
        - Restarts and ends of epochs do the same in healthy runs.

    References:
        Loshchilov and Hutter, SGDR, ICLR 2017.
    """

    code: ClassVar[str] = "SCH006"
    name: ClassVar[str] = "sawtooth-descent"
    needs: ClassVar[tuple[str, ...]] = ("loss",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.MISSING_CLIPPING: For("the loss jumps up again and again"),
    }
    quiet_steps: ClassVar[int] = 200
    guide: ClassVar[str] = "loss-spike"

    teeth: int = 3

    def init(self) -> SawtoothDescentState:
        """Before the first step."""
        return SawtoothDescentState(_OSCILLATION.init(1))

    def step(self, state: SawtoothDescentState, look: Look) -> tuple[SawtoothDescentState, Sequence[Sighting]]:
        """Look at one more loss."""
        loss = look.view.value("loss")
        if not math.isfinite(loss):
            return state, ()
        last = (*state.last, loss)[-5:]
        state = SawtoothDescentState(_OSCILLATION.take(state.window, np.array([middle(last)])), last)
        if look.run.num_losses % 8:
            return state, ()
        out = _OSCILLATION.judge(state.window)
        if not (out.sawtooth[0] > 0.5 and out.num_teeth[0] >= self.teeth and has_level(look)):
            return state, ()
        message = f"the loss made {count(int(out.num_teeth[0]), 'large rise')} among many small falls in 128 steps"
        evidence = (look.evidence("loss", loss, look.run.loss_median),)
        return state, (Sighting(Severity.INFO, message, evidence=evidence),)
