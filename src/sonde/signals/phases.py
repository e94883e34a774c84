"""The phases of a learning rate, read from its own series: warmup, constant, decay, and jumps."""

import enum
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sonde.core.records import Float64, Int64
from sonde.signals.signal import Bool


class Phase(enum.IntEnum):
    """What a learning rate does."""

    UNKNOWN = 0
    """Too few values to say."""
    WARMUP = 1
    """It rises, for the first time or again."""
    CONSTANT = 2
    DECAY = 3


class PhasesState(NamedTuple):
    """Of each rate: its last value and when, its peak, its phase and when that began, and its last change."""

    rate: Float64
    step: Int64
    peak: Float64
    phase: Int64
    start: Int64
    velocity: Float64
    """Change a step, of the last change."""
    changed: Int64
    """The step of the last change."""
    gap: Int64
    """Steps between the last two changes, where they went the same way."""


class PhasesOut(NamedTuple):
    """What each rate is doing."""

    phase: Int64
    """A `Phase`."""
    start: Int64
    """The step at which the phase began; −1 before the first value."""
    relative: Float64
    """The rate over its peak so far; NaN before the first value above 0."""
    jumped: Bool
    """Whether the rate leapt at this very value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """Follows learning rates (one a parameter group) and says which phase of their schedule they are in.

    A change is one of more than `tolerance` of the rate. It is a *jump* if it is larger than `jump` times the larger
    of both rates and, within a warmup or decay, more than three times as fast as the last change: then a constant
    phase begins, until more is known. Any other rise is warmup, any other fall decay, which last until the rate has
    stood still for longer than `patience` steps and twice the time between its last two changes (a scheduler may act
    once an epoch); the constant phase is then dated back to the last change. A rate's very first change is never a
    jump, since warmups start with large ones. Step schedules are constant phases divided by jumps; a cosine with
    restarts is decays divided by jumps. Steps may be irregular; NaN, infinite and missing rates change nothing.

    Args:
        jump: Share of the rate, in (0, 1); larger means fewer jumps.
        patience: Steps without a change that end a warmup or a decay.
        tolerance: Relative changes below this are rounding (rows are float32).

    Example:
        >>> phases = Phases(patience=3)
        >>> state = phases.init(1)
        >>> for at, rate in enumerate([0.1, 0.2, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.03, 0.03]):
        ...     state, out = phases.step(state, np.array([rate]), at)
        ...     if at in (2, 7, 8):
        ...         print(Phase(out.phase[0]).name, out.start[0], out.relative[0].round(2), out.jumped[0])
        WARMUP 1 1.0 False
        CONSTANT 2 1.0 False
        CONSTANT 8 0.1 True
    """

    jump: float = 0.05
    patience: int = 10
    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        if not 0 < self.jump < 1:
            raise ValueError(f"`Phases(jump=...)` must be in (0, 1), got {self.jump}.")
        if self.patience < 1:
            raise ValueError(f"`Phases(patience=...)` must be at least 1, got {self.patience}.")
        if not 0 <= self.tolerance < self.jump:
            raise ValueError(f"`Phases(tolerance=...)` must be in [0, {self.jump}), got {self.tolerance}.")

    def init(self, num_tags: int) -> PhasesState:
        """The state before the first value."""
        never = np.full(num_tags, -1, np.int64)
        zeros, count = np.zeros(num_tags), np.zeros(num_tags, np.int64)
        return PhasesState(np.full(num_tags, np.nan), never, zeros, count, never, zeros, never, count)

    def step(self, state: PhasesState, values: Float64, at: int) -> tuple[PhasesState, PhasesOut]:
        """Take the rate of each tag at training step `at`."""
        if state.phase.tolist() == [int(Phase.CONSTANT)] * len(values) and values.tolist() == state.rate.tolist():
            # Nothing moved, as at nearly every step of most trainings.
            state = state._replace(step=np.full_like(state.step, at))
            return state, self._out(state, state.phase < 0)
        if len(values) == 1:
            return self._one(state, values.item(), at)
        taken = np.isfinite(values)
        first = taken & (state.step < 0)
        rate = np.where(taken, values, state.rate)
        change = np.where(taken & ~first, rate - state.rate, 0.0)
        larger = np.maximum(np.abs(rate), np.abs(state.rate))
        velocity = change / np.maximum(at - state.step, 1)
        sudden = (state.phase == Phase.CONSTANT) | (np.abs(velocity) > 3 * np.abs(state.velocity))
        with np.errstate(invalid="ignore"):
            moved = np.abs(change) > self.tolerance * larger
            jumped = moved & sudden & (np.abs(change) > self.jump * larger) & (state.phase != Phase.UNKNOWN)
        ramp = np.where(change > 0, np.int64(Phase.WARMUP), np.int64(Phase.DECAY))
        ramps = moved & ~jumped
        begins = ramps & (ramp != state.phase)
        again = ramps & (velocity * state.velocity > 0)
        still = at - state.changed > np.maximum(self.patience, 2 * state.gap)
        settles = taken & ~first & ~moved & still & (state.phase != Phase.CONSTANT)

        phase = np.where(begins, ramp, np.where(jumped | settles, np.int64(Phase.CONSTANT), state.phase))
        start = np.where(begins | jumped | first, at, np.where(settles, state.changed, state.start))
        peak = np.where(taken, np.maximum(state.peak, rate), state.peak)
        new = PhasesState(
            rate=rate,
            step=np.where(taken, at, state.step),
            peak=peak,
            phase=phase,
            start=start,
            velocity=np.where(moved, velocity, state.velocity),
            changed=np.where(moved | first, at, state.changed),
            gap=np.where(again, at - state.changed, np.where(moved, 0, state.gap)),
        )
        return new, self._out(new, jumped)

    def _one(self, state: PhasesState, value: float, at: int) -> tuple[PhasesState, PhasesOut]:
        """The same for a single rate, in plain numbers: a rate that moves at every step would cost 40 operations."""
        if not math.isfinite(value):
            return state, self._out(state, state.phase < 0)
        rate, step, peak, phase, start, velocity, changed, gap = (array.item() for array in state)
        first = step < 0
        change = 0.0 if first else value - rate
        larger = abs(value) if first else max(abs(value), abs(rate))
        pace = change / max(at - step, 1)
        moved = abs(change) > self.tolerance * larger
        sudden = phase == Phase.CONSTANT or abs(pace) > 3 * abs(velocity)
        jumped = moved and sudden and abs(change) > self.jump * larger and phase != Phase.UNKNOWN
        ramp = Phase.WARMUP if change > 0 else Phase.DECAY
        begins = moved and not jumped and phase != ramp
        settles = not (first or moved or phase == Phase.CONSTANT) and at - changed > max(self.patience, 2 * gap)
        if begins or jumped or first:
            start = at
        elif settles:
            start = changed
        if begins:
            phase = int(ramp)
        elif jumped or settles:
            phase = int(Phase.CONSTANT)
        if moved:
            gap = at - changed if not jumped and pace * velocity > 0 else 0
            velocity = pace
        new = PhasesState(
            rate=np.array([value]),
            step=np.array([at], np.int64),
            peak=np.array([max(peak, value)]),
            phase=np.array([phase], np.int64),
            start=np.array([start], np.int64),
            velocity=np.array([velocity]),
            changed=np.array([at if moved or first else changed], np.int64),
            gap=np.array([gap], np.int64),
        )
        return new, self._out(new, np.array([jumped]))

    def _out(self, state: PhasesState, jumped: Bool) -> PhasesOut:
        if len(state.peak) == 1:
            peak = state.peak.item()
            relative = np.array([state.rate.item() / peak if peak > 0 else np.nan])
        else:
            with np.errstate(invalid="ignore", divide="ignore"):
                relative = np.where(state.peak > 0, state.rate / state.peak, np.nan)
        return PhasesOut(state.phase, state.start, relative, jumped)
