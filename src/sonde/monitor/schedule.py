"""What has its turn in an iteration of the training loop."""

import sys
from collections.abc import Sequence

from sonde.core.cadences import Burst, Every, Rotation, stretched
from sonde.monitor.cadences import Cadences

_MOST_EARLY = 100  # slots: with a thousand blocks the first steps would be twice as long


class Schedule:
    """The cadences as they are kept: stretched by the budget, overruled by a burst or a sweep.

    Args:
        cadences: The settings.
    """

    def __init__(self, cadences: Cadences) -> None:
        self.cadences = cadences
        self._iteration = 0
        self.version = 0
        """Changes with whatever `next_turn` depends on, but for the iteration."""
        self.norm_steps = 1
        """Of so many steps one has its global norms read."""
        self._stretch = 1.0
        self._burst = self._sweep = Burst(0, 0)
        # Asked several times a step, and the same for hundreds of steps.
        self._beats: dict[tuple[str, bool], Every] = {}
        self._rotations: dict[tuple[str, int], Rotation] = {}

    @property
    def iteration(self) -> int:
        """Iterations in which an optimiser stepped, as far as the host knows; the present one's number."""
        return self._iteration

    @iteration.setter
    def iteration(self, number: int) -> None:
        before, self._iteration = self._phase, number
        if self._phase != before:
            self._changed()

    @property
    def _phase(self) -> str:
        if self._sweep.due(self._iteration):
            return "sweep"
        return "early" if self._iteration < self.cadences.early_steps else "usual"

    def _changed(self) -> None:
        self.version += 1
        self._beats.clear()
        self._rotations.clear()

    @property
    def stretch(self) -> float:
        """How much rarer than the settings say."""
        return self._stretch

    @stretch.setter
    def stretch(self, factor: float) -> None:
        if factor != self._stretch:
            self._stretch = factor
            self._changed()

    def burst(self, num_steps: int) -> None:
        """Measure everything at each of the next steps, from the next iteration on."""
        self._burst = Burst(self.iteration + 1, num_steps)
        self.version += 1

    def sweep(self, num_steps: int) -> None:
        """Have everything measured once within the next steps, each slot in its turn, whatever the budget says."""
        self._sweep = Burst(self.iteration + 1, num_steps)

    def due(self, family: str, ahead: int = 0) -> bool:
        """Whether a family (a field of `Cadences`) has its turn now, or so many iterations ahead."""
        step = self.iteration + ahead
        return self._beat(family).due(step) or self._burst.due(step)

    def norms_due(self) -> bool:
        """Whether the global norms have their turn now."""
        return self.iteration % self.norm_steps == 0 or self._burst.due(self.iteration)

    def slots(self, family: str, num_slots: int) -> Sequence[int]:
        """Which of a rotating family's slots have their turn now."""
        if self._burst.due(self.iteration):
            return range(num_slots)
        rotation = self._rotations.get((family, num_slots))
        if rotation is None:
            rotation = self._rotations[family, num_slots] = Rotation(self._beat(family, num_slots), num_slots)
        return rotation.due(self.iteration)

    def resume(self, iteration: int) -> None:
        """Go on from another iteration."""
        self.iteration = iteration
        self.version += 1

    def next_turn(self, family: str, num_slots: int) -> int:
        """The first iteration after this one in which a slot has its turn, as long as `version` stays the same."""
        start = self.iteration + 1
        if not num_slots:
            return sys.maxsize
        if start < self._burst.start_step + self._burst.num_steps:
            return (
                start if self._burst.due(start) else min(self._burst.start_step, self._turn(family, num_slots, start))
            )
        return self._turn(family, num_slots, start)

    def _turn(self, family: str, num_slots: int, start: int) -> int:
        beat = self._beat(family, num_slots)
        interval = beat.interval_steps
        phase = (start - beat.offset) % interval
        following = -(-phase * num_slots // interval)  # the first slot whose turn is not over
        return start + following * interval // num_slots - phase

    def _beat(self, family: str, num_slots: int = 1) -> Every:
        key = family, num_slots <= _MOST_EARLY
        beat = self._beats.get(key)
        if beat is None:
            beat = self._beats[key] = self._made(family, is_small=key[1])
        return beat

    def _made(self, family: str, *, is_small: bool) -> Every:
        cadence: Every = getattr(self.cadences, family)
        if self._phase == "sweep":
            interval = min(cadence.interval_steps, self._sweep.num_steps)
            return Every(interval, cadence.offset % interval)
        if self._phase == "early" and is_small:
            cadence = self.cadences.early(family)
        return stretched(cadence, self._stretch)
