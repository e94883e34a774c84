"""WGT008 weights-start-over."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.parameter_kinds import Kind
from sonde.core.quantities import amount
from sonde.rules.rule import Cause, Claims, For, Look, Severity, Sighting

_CONFIRMED = 8  # losses after the look that must be as high


class WeightsStartOverState(NamedTuple):
    """Each matrix's first size and its latest; what was seen and is not confirmed yet."""

    names: tuple[str, ...] = ()
    firsts: tuple[float, ...] = ()
    lasts: tuple[float, ...] = ()
    loss: float = float("nan")
    """Usual at the look before."""
    step: int = -1
    """Of a look at which the weights were back where they began …"""
    before: float = float("nan")
    """… and the loss that was usual before it."""
    num_later: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightsStartOver:
    """The weights are new again, in the middle of the training.

    What it detects:
        - At one measurement of the weights (every 10 steps by default) matrices had moved from their first size by
          `moved` or more; at the next one most of them are back within `back` of that move.
        - The loss has lost more than `share` of what it had gained, and does not come down within eight steps.

    Why it matters:
        What was learned is lost. No optimiser steps back to where it began: something made the weights anew.

    Evidence:
        `weight/rms@…` against its first value; `loss` before and after.

    What to do:
        Look for what runs at that step: a model that is built or initialised inside the loop, `reset_parameters`, a
        checkpoint of the start that is loaded, a new fold of a cross-validation in the same run.

    When it is wrong:
        - Weights that are reset on purpose (lottery tickets, continual or reinforcement learning).

    References:
        Nikishin et al., The primacy bias in deep reinforcement learning, ICML 2022 (resets on purpose).
    """

    code: ClassVar[str] = "WGT008"
    name: ClassVar[str] = "weights-start-over"
    needs: ClassVar[tuple[str, ...]] = ("weight/rms@",)
    reads: ClassVar[tuple[str, ...]] = needs
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.STATE_RESET: For("the weights are as they were at the start"),
    }
    quiet_steps: ClassVar[int] = 300
    guide: ClassVar[str] = "loss-spike"

    moved: float = 0.03
    back: float = 0.4
    share: float = 0.5

    def init(self) -> WeightsStartOverState:
        """Before the first step."""
        return WeightsStartOverState()

    def waits(self, state: WeightsStartOverState) -> bool:
        """Whether the losses after a return are looked at."""
        return state.step >= 0

    def step(self, state: WeightsStartOverState, look: Look) -> tuple[WeightsStartOverState, Sequence[Sighting]]:
        """Look at the weights where they were measured, and at the losses after a return."""
        run = look.run
        layers = look.view.layers("weight/rms")
        if layers is not None and len(layers.names) >= len(state.names):
            state = self._compared(state, look)
        if state.step < 0 or run.step == state.step:
            return state, ()
        gained = run.loss_start - state.before
        state = state._replace(num_later=state.num_later + 1)
        if not run.loss > state.before + 0.25 * gained:
            return state._replace(step=-1), ()
        if state.num_later < _CONFIRMED:
            return state, ()
        message = (
            f"at step {state.step:,} the weights were back at the size that they began with, and the loss rose from "
            f"{amount(state.before)} to {amount(run.loss)} (it began at {amount(run.loss_start)})"
        )
        evidence = look.evidence("loss", run.loss, state.before)
        where = state.names[:1]
        seen = Sighting(Severity.WARNING, message, where, (evidence,), since=state.step)
        return state._replace(step=-1), (seen,)

    def _compared(self, state: WeightsStartOverState, look: Look) -> WeightsStartOverState:
        layers, run = look.view.layers("weight/rms"), look.run
        assert layers is not None
        kinds = look.view.kinds
        places = [
            place
            for place, (name, value) in enumerate(zip(layers.names, layers.values.tolist(), strict=True))
            if value > 0 and kinds.of(name) is not Kind.BIAS
        ]
        names, now = tuple(layers.names[place] for place in places), layers.values[places]
        if names != state.names:
            values = tuple(now.tolist())
            return WeightsStartOverState(names, values, values, run.loss_median)
        first, last = np.array(state.firsts), np.array(state.lasts)
        was, is_now = np.log(last / first), np.log(now / first)
        far = np.abs(was) >= self.moved
        returned = far & (np.abs(is_now) < self.back * np.abs(was))
        gained, loss = run.loss_start - state.loss, run.loss
        back = bool(far.any()) and returned.sum() > 0.5 * max(far.sum(), 0.5 * len(far))
        worse = gained > 0 and loss > state.loss + self.share * gained
        if state.step < 0 and back and worse and run.is_alone:
            state = state._replace(step=run.step, before=state.loss, num_later=0)
        return state._replace(lasts=tuple(now.tolist()), loss=run.loss_median)
