"""What has its turn in an iteration of the training loop."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple, Protocol

from sonde.core.cadences import Burst, Every
from sonde.probes.cadences import Cadences

_MOST_EARLY = 100  # slots: with a thousand blocks the first steps would be twice as long
_ROUNDING = 1e-6  # iterations
_NEVER = 1 << 62
FOR_COSINES = 3
"""Iterations in a row: a sketch of the weights before, one after it, and that of the update before."""


class Due(Protocol):
    """Says what has its turn."""

    @property
    def cadences(self) -> Cadences:
        """The settings."""

    @property
    def iteration(self) -> int:
        """The present iteration's number."""

    def due(self, family: str, ahead: int = 0) -> bool:
        """Whether a family (a field of `Cadences`) has its turn now, or so many iterations ahead."""

    def slots(self, family: str, num_slots: int) -> Sequence[int]:
        """Which of a family's slots have their turn now."""

    @property
    def is_quiet(self) -> bool:
        """Whether nothing has its turn now, nor cosines soon, which need some iterations in a row."""


class _Clock(NamedTuple):
    """The beats of a family: those of iteration i lie from `beat + (i - iteration) × pace` to the next one's."""

    iteration: int
    beat: float
    pace: float
    pace_before: float = 1.0

    def at(self, iteration: int) -> float:
        ahead = iteration - self.iteration
        return self.beat + ahead * (self.pace if ahead > 0 else self.pace_before)


@dataclass(slots=True, eq=False)
class _Turn:
    """The slots of a family, for all who spread their work over as many."""

    family: str
    num_slots: int
    slots: Sequence[int] = ()
    """Those that have their turn in this iteration."""
    following: int = 0
    """An iteration before which none has one."""


class Schedule:
    """The cadences as they are kept: stretched by the budget, overruled by a burst or a sweep.

    A slot whose beat lies between an iteration and the next has its turn in it. Where cadences are stretched, beats
    come more slowly, so that a turn comes later but is never passed over. No family is stretched beyond the interval
    that `Cadences.longest` has for it: what is not looked at cannot be found.

    Args:
        cadences: The settings.
    """

    def __init__(self, cadences: Cadences) -> None:
        self.cadences = cadences
        self._iteration = 0
        self._stretch = 1.0
        self._burst = self._sweep = Burst(0, 0)
        self._clocks = self._started()
        self._turns: dict[tuple[str, int], _Turn] = {}
        self._present: list[_Turn] = []
        """Those with slots in this iteration."""
        self._soonest = 0
        """Before this iteration there is nothing to find out."""
        self._quiet_before = 0
        """Before this one, cosines have no turn soon."""
        self.is_idle = self.is_quiet = False
        """Whether nothing that was asked for before has its turn now; and whether cosines, which need some iterations
        in a row, have none soon. Told at each step in several places: so they are worked out once."""

    @property
    def iteration(self) -> int:
        """Iterations in which an optimiser stepped, as far as the host knows; the present one's number."""
        return self._iteration

    def advance(self) -> None:
        """The next iteration begins."""
        for turn in self._present:
            turn.slots = ()
        self._present.clear()
        self._iteration += 1
        if self._iteration >= self._soonest:
            self._find(self._turns.values())
        self._note_quiet()

    def resume(self, iteration: int) -> None:
        """Go on from another iteration."""
        for turn in self._present:
            turn.slots = ()
        self._present.clear()
        self._iteration = iteration
        self._clocks = self._started()
        self._look_anew()
        self._find(self._turns.values())
        self._note_quiet()

    @property
    def stretch(self) -> float:
        """How much rarer than the settings say, from the next iteration on."""
        return self._stretch

    @stretch.setter
    def stretch(self, factor: float) -> None:
        if factor != self._stretch:
            self._stretch = factor
            self._set_clocks(self._iteration + 1)
            self._look_anew()

    def burst(self, num_steps: int) -> None:
        """Measure everything at each of the next steps, from the next iteration on."""
        self._burst = Burst(self._iteration + 1, num_steps)
        self._look_anew()

    def sweep(self, num_steps: int) -> None:
        """Have everything measured once within the next steps, each slot in its turn, whatever the budget says."""
        self._sweep = Burst(self._iteration + 1, num_steps)
        self._look_anew()

    def _note_quiet(self) -> None:
        self.is_idle = not self._present
        self.is_quiet = self.is_idle and self._iteration < self._quiet_before

    def due(self, family: str, ahead: int = 0) -> bool:
        """Whether a family (a field of `Cadences`) has its turn now, or so many iterations ahead."""
        turn = self._turn(family, 1)
        if not ahead:
            return bool(turn.slots)
        return turn.following <= self._iteration + ahead and bool(self._found(turn, self._iteration + ahead))

    def slots(self, family: str, num_slots: int) -> Sequence[int]:
        """Which of a rotating family's slots have their turn now."""
        return self._turn(family, num_slots).slots

    def _turn(self, family: str, num_slots: int) -> _Turn:
        turn = self._turns.get((family, num_slots))
        if turn is None:
            turn = self._turns[family, num_slots] = _Turn(family, num_slots)
            self._find([turn])
            self._note_quiet()
        return turn

    def _look_anew(self) -> None:
        self._soonest = self._quiet_before = 0
        self._note_quiet()
        for turn in self._turns.values():
            turn.following = 0

    def _find(self, turns: Iterable[_Turn]) -> None:
        iteration = self._iteration
        changes = self.cadences.early_steps, self._sweep.start_step, self._sweep.start_step + self._sweep.num_steps
        if iteration and iteration in changes:
            self._set_clocks(iteration)
            self._look_anew()
        for turn in turns:
            if iteration >= turn.following:
                turn.slots = self._found(turn, iteration)
                if turn.slots:
                    self._present.append(turn)
                turn.following = self._following(turn)
        following = [turn.following for turn in self._turns.values()]
        cosines = self._turns.get(("cosines", 1))
        self._quiet_before = 0 if cosines is None else cosines.following - FOR_COSINES + 1
        self._soonest = min([*following, *(change for change in changes if change > iteration)], default=_NEVER)

    def _found(self, turn: _Turn, iteration: int) -> Sequence[int]:
        num = turn.num_slots
        if self._burst.due(iteration):
            return range(num)
        beat, begin, end = self._beats(turn, iteration)
        turns = range(_num_turns(beat, num, begin), _num_turns(beat, num, end))
        return [place % num for place in turns]

    def _following(self, turn: _Turn) -> int:
        """The first iteration after this one in which a slot has its turn, as long as nothing is changed.

        Where rounding makes that doubtful, it is the one before.
        """
        start = self._iteration + 1
        if self._burst.due(start):
            return start
        if not turn.num_slots:
            return _NEVER
        beat, begin, end = self._beats(turn, start)
        place = _num_turns(beat, turn.num_slots, begin)
        ahead = (beat.offset + place * beat.interval_steps / turn.num_slots - begin) / (end - begin)
        following = start + max(math.floor(ahead - _ROUNDING), 0)
        return min(following, self._burst.start_step) if start <= self._burst.start_step else following

    def _beats(self, turn: _Turn, iteration: int) -> tuple[Every, float, float]:
        """A family's cadence in an iteration; where on its clock that begins, and where it ends."""
        cadence: Every = getattr(self.cadences, turn.family)
        if self._sweep.due(iteration):
            interval = min(cadence.interval_steps, self._sweep.num_steps)
            return Every(interval, cadence.offset % interval), float(iteration), iteration + 1.0
        if iteration < self.cadences.early_steps and turn.num_slots <= _MOST_EARLY:
            cadence = self.cadences.early(turn.family)
        clock = self._clocks[turn.family]
        return cadence, clock.at(iteration), clock.at(iteration + 1)

    def _set_clocks(self, at: int) -> None:
        """Have all clocks go at their pace from an iteration on."""
        self._clocks = {f: _Clock(at, c.at(at), self._pace(f, at), c.pace) for f, c in self._clocks.items()}

    def _started(self) -> dict[str, _Clock]:
        """A clock for each family, on the present iteration."""
        now = self._iteration
        families = (item.name for item in fields(self.cadences) if item.name != "early_steps")
        return {family: _Clock(now, float(now), self._pace(family, now)) for family in families}

    def _pace(self, family: str, iteration: int) -> float:
        is_early = iteration < self.cadences.early_steps
        cadence: Every = self.cadences.early(family) if is_early else getattr(self.cadences, family)
        longest = self.cadences.longest(family, is_early=is_early)
        return 1.0 / min(self._stretch, max(longest / cadence.interval_steps, 1.0))


def _num_turns(beat: Every, num_slots: int, time: float) -> int:
    """Turns of all slots before a time, from the offset on; slot j of n has its own at j/n of the interval."""
    return math.ceil((time - beat.offset) * num_slots / beat.interval_steps)
