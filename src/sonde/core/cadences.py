"""When to measure: on a beat, in rotation, in a burst; and how far to stretch it to keep the budget."""

import math
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Every:
    """A beat: steps `offset`, `offset + interval_steps`, and so on.

    Args:
        interval_steps: At least 1; larger means more rarely.
        offset: From 0 to below the interval. Different offsets spread the work of families with equal
            intervals.

    Example:
        >>> [step for step in range(10) if Every(4, 1).due(step)]
        [1, 5, 9]
    """

    interval_steps: int
    offset: int = 0

    def __post_init__(self) -> None:
        if self.interval_steps < 1:
            raise ValueError(f"`Every(interval_steps=...)` must be at least 1, got {self.interval_steps}.")
        if not 0 <= self.offset < self.interval_steps:
            raise ValueError(f"`Every(offset=...)` must be in [0, {self.interval_steps}), got {self.offset}.")

    def due(self, step: int) -> bool:
        return (step - self.offset) % self.interval_steps == 0


def every(interval_steps: int) -> Every:
    """The beat `Every(interval_steps)`; reads well in settings: `histograms=every(8)`."""
    return Every(interval_steps)


def stretched(cadence: Every, factor: float) -> Every:
    """The cadence made rarer: its interval times `factor` (at least 1).

    Rounded up, so that it never costs more than asked.

    Example:
        >>> stretched(every(8), 1.5)
        Every(interval_steps=12, offset=0)
    """
    if not (math.isfinite(factor) and factor >= 1):
        raise ValueError(f"`stretched(factor=...)` must be a finite number of at least 1, got {factor}.")
    interval = cadence.interval_steps * factor
    # 10 × 1.1 is 11.000000000000002, and 11 is meant
    return Every(math.ceil(interval - 1e-9 * interval), cadence.offset)


@dataclass(frozen=True, slots=True)
class Rotation:
    """Which of `num_slots` tensors (or blocks) have their turn at a step.

    In every `interval_steps` steps in a row each slot comes exactly once, and no step has two slots more
    than another: with n slots, interval T and p = (step − offset) mod T, the slots are ⌈p·n/T⌉ to
    ⌈(p+1)·n/T⌉ − 1, so that the first one comes at once. With fewer slots than steps some steps have none.

    Example:
        >>> rotation = Rotation(every(4), num_slots=6)
        >>> [list(rotation.due(step)) for step in range(4)]
        [[0, 1], [2], [3, 4], [5]]
    """

    cadence: Every
    num_slots: int

    def __post_init__(self) -> None:
        if self.num_slots < 0:
            raise ValueError(f"`Rotation(num_slots=...)` must be at least 0, got {self.num_slots}.")

    def due(self, step: int) -> range:
        interval = self.cadence.interval_steps
        phase = (step - self.cadence.offset) % interval
        return range(-(-phase * self.num_slots // interval), -(-(phase + 1) * self.num_slots // interval))


@dataclass(frozen=True, slots=True)
class Burst:
    """Detail at every step, for `num_steps` steps from `start_step` on, whatever the cadences say.

    Example:
        >>> burst = Burst(100, num_steps=3)
        >>> [step for step in range(98, 106) if every(50).due(step) or burst.due(step)]
        [100, 101, 102]
    """

    start_step: int
    num_steps: int

    def __post_init__(self) -> None:
        if self.num_steps < 0:
            raise ValueError(f"`Burst(num_steps=...)` must be at least 0, got {self.num_steps}.")

    def due(self, step: int) -> bool:
        return self.start_step <= step < self.start_step + self.num_steps


class AdaptiveState(NamedTuple):
    """What `Adaptive` remembers; plain numbers, so that it saves into a checkpoint."""

    stretch: float = 1.0
    own_s: float = 0.0
    step_s: float = 0.0
    weight: float = 0.0
    slowest_s: float = 0.0
    calm_steps: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Adaptive:
    """How far to stretch cadences so that Sonde's own time stays within what is allowed.

    That is max(budget × step time, min(floor_s, floor_share × step time)).

    With β = `decay`, a step's own time c and its whole time d:

    - c' = min(c, slowest so far): one slow step (a compilation, a pause) is forgiven, the second one counts.
    - own ← β·own + (1−β)·c', from 0 and *not* bias-corrected: few steps are little evidence.
    - step ← β·step + (1−β)·d, bias-corrected.
    - load ρ = own / max(budget × step, min(floor_s, floor_share × step)).

    Where ρ > 1, at once stretch ← stretch × min(ρ/target, 2). Where ρ < relax_below for relax_after_steps
    steps in a row, stretch ← stretch × 0.8. In between nothing changes. Stretching by f should divide the
    cost by f, so `own` is divided along with it and the next step judges the new cadence, not the old one;
    where a part of the cost cannot be stretched, ρ comes back and so does the next raise, up to
    `max_stretch`.

    Work that is done once in many steps belongs into a `Rotation`: in one piece it reads as an overload
    that comes and goes.

    A step with a NaN, infinite or negative time is ignored. On resume, go on from the saved state.

    Args:
        budget: Share of the step time, in (0, 1].
        floor_s: Seconds a step that are always allowed, above 0, so that tiny models are watched in full.
        floor_share: Share of the step time above which the floor does not count, above 0.
        decay: In [0, 1); larger means smoother and slower to notice.
        target: Load aimed at when raising, in (relax_below, 1].
        relax_below: Load below which there is room to measure more, above 0 and below 0.8 (from there on,
            relaxing would bring back the load that was just cured).
        relax_after_steps: Calm steps before each relaxation, at least 1; larger means slower.
        max_stretch: At least 1.

    Example:
        >>> adaptive = Adaptive(budget=0.01, floor_s=1e-4)
        >>> state = adaptive.init()
        >>> for _ in range(200):  # 4 ms of own work at the plain cadence, in steps of 100 ms
        ...     state, stretch = adaptive.step(state, 0.004 / state.stretch, 0.1)
        >>> 4 < stretch < 8
        True
    """

    budget: float = 0.01
    floor_s: float = 2e-4
    floor_share: float = math.inf
    decay: float = 0.99  # a memory of 100 steps, the longest of the default cadences that rotate
    target: float = 0.75
    relax_below: float = 0.5
    relax_after_steps: int = 200
    max_stretch: float = 100.0

    def __post_init__(self) -> None:
        if not 0 < self.budget <= 1:
            raise ValueError(f"`Adaptive(budget=...)` must be in (0, 1], got {self.budget}.")
        if not 0 < self.floor_s < math.inf:
            raise ValueError(f"`Adaptive(floor_s=...)` must be above 0 and finite, got {self.floor_s}.")
        if not self.floor_share > 0:
            raise ValueError(f"`Adaptive(floor_share=...)` must be above 0, got {self.floor_share}.")
        if not 0 <= self.decay < 1:
            raise ValueError(f"`Adaptive(decay=...)` must be in [0, 1), got {self.decay}.")
        if not 0 < self.relax_below < _RELAX:
            raise ValueError(f"`Adaptive(relax_below=...)` must be in (0, {_RELAX}), got {self.relax_below}.")
        if not self.relax_below < self.target <= 1:
            raise ValueError(f"`Adaptive(target=...)` must be in ({self.relax_below}, 1], got {self.target}.")
        if self.relax_after_steps < 1:
            raise ValueError(f"`Adaptive(relax_after_steps=...)` must be at least 1, got {self.relax_after_steps}.")
        if not 1 <= self.max_stretch < math.inf:
            raise ValueError(f"`Adaptive(max_stretch=...)` must be at least 1 and finite, got {self.max_stretch}.")

    def init(self) -> AdaptiveState:
        return AdaptiveState()

    def step(self, state: AdaptiveState, own_s: float, step_s: float) -> tuple[AdaptiveState, float]:
        """The stretch after one more step, at least 1."""
        if not (0 <= own_s < math.inf and 0 <= step_s < math.inf):
            return state, state.stretch
        old, new = self.decay, 1 - self.decay
        mean_own_s = old * state.own_s + new * min(own_s, state.slowest_s)
        mean_step_s = old * state.step_s + new * step_s
        weight = old * state.weight + new
        load = mean_own_s / self._allowed_s(mean_step_s, weight)
        calm_steps = state.calm_steps + 1 if load < self.relax_below else 0

        stretch = state.stretch
        if load > 1:
            stretch = min(stretch * min(load / self.target, _MAX_RAISE), self.max_stretch)
        elif calm_steps >= self.relax_after_steps:
            stretch, calm_steps = max(stretch * _RELAX, 1.0), 0
        state = AdaptiveState(
            stretch=stretch,
            own_s=mean_own_s * state.stretch / stretch,
            step_s=mean_step_s,
            weight=weight,
            slowest_s=max(own_s, state.slowest_s),
            calm_steps=calm_steps,
        )
        return state, stretch

    def allowed_s(self, state: AdaptiveState) -> float:
        """What a step may cost now."""
        return self._allowed_s(state.step_s, state.weight)

    def _allowed_s(self, mean_step_s: float, weight: float) -> float:
        if not weight:
            return self.floor_s
        step_s = mean_step_s / weight
        return max(self.budget * step_s, min(self.floor_s, self.floor_share * step_s))


_MAX_RAISE = 2.0  # one misjudged step costs at most half of the detail; a real overload still ends within a few steps
_RELAX = 0.8  # a quarter more work each time
