"""What has its turn in an iteration of the training loop."""

import math
import sys
from collections.abc import Sequence

from sonde.core.cadences import Burst, Every
from sonde.monitor.cadences import Cadences

_MOST_EARLY = 100  # slots: with a thousand blocks the first steps would be twice as long
_ROUNDING = 1e-6  # iterations
_FOR_COSINES = 3  # iterations in a row: a sketch of the weights before, one after it, and that of the update before
# A poisoned batch is gone when its step is over, so inputs are stretched last.
_STRETCHED_LAST = frozenset({"inputs"})
_STRETCH_BEFORE_LAST = 10.0


class _Clock:
    """Begin and end of an iteration, in steps of cadences that nobody stretches."""

    def __init__(self) -> None:
        self.begin, self.end, self.pace = 0.0, 1.0, 1.0

    def advance(self, pace: float, *, holds: bool) -> None:
        """The next iteration, which lasts so long; turns of the last one are its own where that `holds` them."""
        self.begin, self.end, self.pace = self.begin if holds else self.end, self.end + pace, pace

    def set(self, iteration: int, pace: float) -> None:
        """An iteration that does not follow the last one."""
        self.begin, self.end, self.pace = float(iteration), iteration + pace, pace


class Schedule:
    """The cadences as they are kept: stretched by the budget, overruled by a burst or a sweep.

    Beats are counted on a clock that advances by 1 in an iteration, or by 1/stretch where cadences are stretched; a
    slot whose time lies between an iteration and the next has its turn in it. So a turn comes later when the stretch
    grows, but is never passed over. Inputs have a clock of their own, which slows from a tenfold stretch on.

    Where global norms are not read at every step, an iteration without them rests: nothing has its turn in it, and what
    would have had it comes with the next norms. Cosines need iterations that follow each other: none of those rests.

    Args:
        cadences: The settings.
    """

    def __init__(self, cadences: Cadences) -> None:
        self.cadences = cadences
        self._iteration = 0
        self.version = 0
        """Changes with whatever `next_turn` depends on, but for the iteration."""
        self._norm_steps = 1
        self._rests_before = 0
        """From a resting iteration on, all before this one rest as well, unless something is changed."""
        self.rests = False
        """Whether nothing has its turn in this iteration, the loss and the learning rate apart."""
        self._stretch = 1.0
        self._burst = self._sweep = Burst(0, 0)
        self._usual_clock, self._last_clock = _Clock(), _Clock()
        # Asked several times a step, and the same for hundreds of steps.
        self._beats: dict[tuple[str, bool], Every] = {}
        self._quiet: dict[tuple[str, int], tuple[int, int]] = {}
        """By family and number of slots: from this iteration on, and before that one, none has its turn …"""
        self._quiet_version = 0
        """… as long as this is the version."""

    @property
    def iteration(self) -> int:
        """Iterations in which an optimiser stepped, as far as the host knows; the present one's number."""
        return self._iteration

    @iteration.setter
    def iteration(self, number: int) -> None:
        if number == self._iteration + 1 and number < self._rests_before:  # nearly always, where there are any
            self._iteration = number
            self._usual_clock.end += self._usual_clock.pace
            self._last_clock.end += self._last_clock.pace
            return
        before, goes_on = self._phase, number == self._iteration + 1
        self._iteration = number
        if self._phase != before:
            self.version += 1
            self._beats.clear()
        for clock, is_last in ((self._usual_clock, False), (self._last_clock, True)):
            pace = self._pace(is_last=is_last)
            if goes_on:
                clock.advance(pace, holds=self.rests)
            else:
                clock.set(number, pace)
        if not goes_on:
            self._quiet.clear()
        self.rests, self._rests_before = False, 0
        if self.norm_steps > 1 and number % self.norm_steps:
            is_looked_at = self._burst.due(number) or self._sweep.due(number)
            self.rests = not is_looked_at and not any(self.due("cosines", ahead) for ahead in range(_FOR_COSINES))
            if self.rests:
                self._rests_before = self._wakes_at()

    def _wakes_at(self) -> int:
        number = self._iteration
        with_norms = number - number % self.norm_steps + self.norm_steps
        for_cosines = self.next_turn("cosines", 1) - _FOR_COSINES + 1
        others = self._burst.start_step, self._sweep.start_step, self.cadences.early_steps
        return min(with_norms, for_cosines, *(start for start in others if start > number))

    def wake(self) -> None:
        """Something is looked at in this iteration all the same: it does not rest."""
        self.rests, self._rests_before = False, 0

    @property
    def norm_steps(self) -> int:
        """Of so many steps one has its global norms read."""
        return self._norm_steps

    @norm_steps.setter
    def norm_steps(self, num: int) -> None:
        self._norm_steps, self._rests_before = num, 0

    @property
    def _phase(self) -> str:
        if self._sweep.due(self._iteration):
            return "sweep"
        return "early" if self._iteration < self.cadences.early_steps else "usual"

    def _pace(self, *, is_last: bool) -> float:
        stretch = max(self._stretch / _STRETCH_BEFORE_LAST, 1.0) if is_last else self._stretch
        return 1.0 if self._phase == "sweep" else 1.0 / stretch

    def _clock(self, family: str) -> _Clock:
        return self._last_clock if family in _STRETCHED_LAST else self._usual_clock

    @property
    def stretch(self) -> float:
        """How much rarer than the settings say, from the next iteration on."""
        return self._stretch

    @stretch.setter
    def stretch(self, factor: float) -> None:
        if factor != self._stretch:
            self._stretch, self._rests_before = factor, 0
            self.version += 1

    def burst(self, num_steps: int) -> None:
        """Measure everything at each of the next steps, from the next iteration on."""
        self._burst, self._rests_before = Burst(self.iteration + 1, num_steps), 0
        self.version += 1

    def sweep(self, num_steps: int) -> None:
        """Have everything measured once within the next steps, each slot in its turn, whatever the budget says."""
        self._sweep, self._rests_before = Burst(self.iteration + 1, num_steps), 0

    def due(self, family: str, ahead: int = 0) -> bool:
        """Whether a family (a field of `Cadences`) has its turn now, or so many iterations ahead."""
        if self.rests or self._is_quiet(family, 1, ahead):
            return False
        if self._burst.due(self.iteration + ahead):
            return True
        clock = self._clock(family)
        begin, end = clock.begin, clock.end
        for _ in range(ahead):
            begin, end = end, end + self._pace(is_last=family in _STRETCHED_LAST)
        beat = self._beat(family)
        is_due = _num_turns(beat, 1, begin) < _num_turns(beat, 1, end)
        if not (is_due or ahead):
            self._remember(family, 1)
        return is_due

    def _is_quiet(self, family: str, num_slots: int, ahead: int) -> bool:
        """Whether it is known already that no slot has its turn."""
        if self._quiet_version != self.version:
            self._quiet_version = self.version
            self._quiet.clear()
        since, until = self._quiet.get((family, num_slots), (0, 0))
        return since <= self._iteration + ahead < until

    def _remember(self, family: str, num_slots: int) -> None:
        self._quiet[family, num_slots] = self._iteration, self.next_turn(family, num_slots)

    def norms_due(self) -> bool:
        """Whether the global norms have their turn now."""
        return (not self.rests and self.iteration % self.norm_steps == 0) or self._burst.due(self.iteration)

    def slots(self, family: str, num_slots: int) -> Sequence[int]:
        """Which of a rotating family's slots have their turn now."""
        if self.rests or self._is_quiet(family, num_slots, 0):
            return ()
        if self._burst.due(self.iteration):
            return range(num_slots)
        beat = self._beat(family, num_slots)
        clock = self._clock(family)
        first, end = (_num_turns(beat, num_slots, time) for time in (clock.begin, clock.end))
        if first == end:
            self._remember(family, num_slots)
        return [turn % num_slots for turn in range(first, end)]

    def resume(self, iteration: int) -> None:
        """Go on from another iteration."""
        self.iteration = iteration
        self.version += 1

    def next_turn(self, family: str, num_slots: int) -> int:
        """An iteration after this one before which no slot has its turn, as long as `version` stays the same.

        It is the first in which one has, or where rounding makes that doubtful, the one before.
        """
        start = self.iteration + 1
        if not num_slots:
            return sys.maxsize
        if self._burst.due(start):
            return start
        beat = self._beat(family, num_slots)
        begin = self._clock(family).end
        turn = _num_turns(beat, num_slots, begin)
        pace = self._pace(is_last=family in _STRETCHED_LAST)
        ahead = (beat.offset + turn * beat.interval_steps / num_slots - begin) / pace
        following = start + max(math.floor(ahead - _ROUNDING), 0)
        return min(following, self._burst.start_step) if start <= self._burst.start_step else following

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
        return self.cadences.early(family) if self._phase == "early" and is_small else cadence


def _num_turns(beat: Every, num_slots: int, time: float) -> int:
    """Turns of all slots before a time, from the offset on; slot j of n has its own at j/n of the interval."""
    return math.ceil((time - beat.offset) * num_slots / beat.interval_steps)
