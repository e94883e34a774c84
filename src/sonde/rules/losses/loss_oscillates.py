"""LOS006 loss-oscillates."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import amount, share
from sonde.rules.history.level import has_level
from sonde.rules.rule import Cause, Claims, For, Look, Severity, Sighting
from sonde.signals.oscillation import Oscillation, OscillationState

_OSCILLATION = Oscillation(window=32, min_values=32)
_EVERY = 4  # losses between two judgements


class LossOscillatesState(NamedTuple):
    """The last losses, and for how many steps they have alternated."""

    window: OscillationState
    num: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class LossOscillates:
    """The loss goes up and down in turns.

    What it detects:
        Either of these:
        - For 20 steps, more than `turns` of the differences between neighbouring losses, over the last 32, go against
          the one before (white noise: 2/3), and their lag-1 autocorrelation is below −0.7 (white noise: −1/2).
        - Successive gradients point against each other: the moving average of `grad/cosine` is below −0.5.

        It is information. It is a warning if the loss also rises beyond its noise, and the optimiser's steps can have
        raised it.

    Why it matters:
        Steps overshoot across a valley. As long as the loss falls, this is the edge of stability, which many good runs
        reach. If the loss rises, the learning rate is too high.

    Evidence:
        `loss`: the share of turns; `grad/cosine`.

    What to do:
        Nothing while the loss falls. Otherwise halve the learning rate.

    When it is wrong:
        - Two kinds of batches in turns (a sorted loader, two tasks) alternate without any fault.

    References:
        Cohen et al., Gradient descent on neural networks typically occurs at the edge of stability, ICLR 2021.
    """

    code: ClassVar[str] = "LOS006"
    name: ClassVar[str] = "loss-oscillates"
    needs: ClassVar[tuple[str, ...]] = ("loss",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.LR_TOO_HIGH: For("steps overshoot"),
    }
    quiet_steps: ClassVar[int] = 100

    turns: float = 0.8

    def init(self) -> LossOscillatesState:
        """Before the first step."""
        return LossOscillatesState(_OSCILLATION.init(1))

    def step(self, state: LossOscillatesState, look: Look) -> tuple[LossOscillatesState, Sequence[Sighting]]:
        """Look at one more loss."""
        run = look.run
        if "loss" not in look.view:
            return state, ()
        state = LossOscillatesState(_OSCILLATION.take(state.window, np.array([run.loss])), state.num)
        if run.num_losses % _EVERY:
            return state, ()
        out = _OSCILLATION.judge(state.window)
        alternates = out.turns[0] > self.turns and out.autocorrelation[0] < -0.7
        against = run.grad_cosine < -0.5
        state = state._replace(num=state.num + _EVERY if alternates else 0)
        if state.num < 20 and not against:
            return state, ()
        rises = run.is_rising and run.is_upset and has_level(look)
        severity = Severity.WARNING if rises and run.num_losses > 50 else Severity.INFO
        message = (
            f"the loss goes up and down in turns: {share(out.turns[0])} of its changes go against the one before"
            if state.num >= 20
            else f"successive gradients point against each other (cosine {amount(run.grad_cosine)})"
        )
        evidence = [look.evidence("loss", run.loss, run.loss_median)]
        if math.isfinite(run.grad_cosine):
            evidence.append(look.evidence("grad/cosine", run.grad_cosine, 0.0))
        return state, (Sighting(severity, message, evidence=tuple(evidence), since=run.step - state.num),)
