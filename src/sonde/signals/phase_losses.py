"""Moments of the loss in each phase of the learning rate."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from sonde.signals.phases import Phase, Phases, PhasesState
from sonde.signals.segments import Segment, SegmentMoments, moments, with_value


class PhaseLossesState(NamedTuple):
    """The phase under way."""

    rates: PhasesState
    last: int
    """The last step; −1 before the first."""
    whole: Segment
    """Losses of the phase."""
    before: Segment
    """Those of them from before the rate last changed, …"""
    since: Segment
    """… and those since: where the rate stays, they will have been the first of a constant phase."""


class PhaseOut(NamedTuple):
    """A phase and its losses."""

    phase: Phase
    start: int
    num_steps: int
    losses: SegmentMoments


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseLosses:
    """Says of each phase of a learning rate, when it is over, how long it was and what its losses were like.

    A phase is over when the next is known to have begun, which for a constant one is some steps later (see `Phases`):
    the losses of these steps count for the new one. Steps before the first known phase count for none. Steps without a
    rate change nothing.

    Args:
        phases: How phases are told.

    Example:
        >>> follow = PhaseLosses()
        >>> state = follow.init()
        >>> for at, (rate, loss) in enumerate([(0.1, 9.0), (0.2, 8.0), (0.3, 6.0), (0.03, 2.0), (0.03, 2.0)]):
        ...     state, over = follow.step(state, at, rate, loss)
        ...     if over is not None:
        ...         print(at, over.phase.name, over.start, over.num_steps, over.losses.mean)
        3 WARMUP 1 2 7.0
    """

    phases: Phases = field(default_factory=Phases)

    def init(self) -> PhaseLossesState:
        """The state before the first step."""
        return PhaseLossesState(self.phases.init(1), -1, Segment(), Segment(), Segment())

    def step(
        self, state: PhaseLossesState, at: int, rate: float, loss: float
    ) -> tuple[PhaseLossesState, PhaseOut | None]:
        """Take a step's rate, and its loss, NaN where there is none; the phase that is over with it."""
        if rate == state.rates.rate.item() and state.rates.phase.item() == Phase.CONSTANT:
            # Nothing moved, as at nearly every step of most trainings.
            still = state.rates._replace(step=np.array([at], np.int64))
            return PhaseLossesState(still, at, with_value(state.whole, loss), state.before, state.since), None
        rates, out = self.phases.step(state.rates, np.array([rate]), at)
        if rates is state.rates:  # no rate
            return state, None
        whole, before, since = state.whole, state.before, state.since
        start, old_start = int(out.start[0]), int(state.rates.start[0])
        over: PhaseOut | None = None
        if start != old_start or out.phase[0] != state.rates.phase[0]:
            is_dated_back = start < at
            if old_start >= 0:
                over = self._out(state.rates, start - old_start, before if is_dated_back else whole)
            whole = since if is_dated_back else Segment()
        if rates.changed[0] == at:
            before, since = whole, Segment()
        if rates.phase[0] != Phase.CONSTANT:  # else nothing will be dated back
            since = with_value(since, loss)
        return PhaseLossesState(rates, at, with_value(whole, loss), before, since), over

    def under_way(self, state: PhaseLossesState) -> PhaseOut | None:
        """The phase as it is after the last step."""
        return self._out(state.rates, state.last + 1 - int(state.rates.start[0]), state.whole)

    def _out(self, rates: PhasesState, num_steps: int, losses: Segment) -> PhaseOut | None:
        phase = Phase(int(rates.phase[0]))
        if phase is Phase.UNKNOWN or not num_steps:  # a single fall that turns out to have been a step
            return None
        return PhaseOut(phase, int(rates.start[0]), num_steps, moments(losses))
