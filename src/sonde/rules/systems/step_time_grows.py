"""SYS002 step-time-grows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import amount
from sonde.rules.history.workload import Workload
from sonde.rules.rule import Cause, Claims, Evidence, For, Look, Severity, Sighting
from sonde.rules.systems.throughput_drop import own_share
from sonde.signals.medians import middle

_MOST_BLOCKS = 48


class StepTimeGrowsState(NamedTuple):
    """Times of the block that is under way, and the lower quartile of each block before it."""

    width: int = 12
    values: tuple[float, ...] = ()
    shortest: tuple[float, ...] = ()
    sequence: float = 1.0
    """The length of the last examples that were looked at."""
    wholes: tuple[float, ...] = ()
    """The same times as `values`, with what other work on the machine took …"""
    shortest_wholes: tuple[float, ...] = ()
    """… and their quartiles."""
    work: Workload = Workload()


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTimeGrows:
    """Steps take longer and longer.

    What it detects:
        - Steps are judged in blocks of 12 (more in long runs), and of each block the lower quartile of the step times
          counts. There must be ten blocks, and the first one is left out.
        - The time that other work on the machine took (`time/starved`) is taken off. The time is divided by the length
          of the sequences, and by the number of examples if it varies from step to step.
        - The block times rise with time: the rank correlation is above `correlation`.
        - The last quarter of the blocks takes more than `growth` times as long as the first quarter, with and without
          the time of other work.
        - Always a warning.

    Why it matters:
        Something piles up: hooks that are registered again and again, a list that is walked through at every step, a
        graph that is kept, a cache that only grows. The growth does not stop by itself.

    Evidence:
        `time/step` over the run.

    What to do:
        - See which part grows: `time/data`, `time/forward` or `time/backward`.
        - Look at what the loop adds to: hooks, lists of tensors, metrics with a history.

    When it is wrong:
        - Pictures may grow on purpose.
        - Throttling and other work on the machine look the same if they come gradually.

    References:
        Spearman, The proof and measurement of association between two things, 1904.
    """

    code: ClassVar[str] = "SYS002"
    name: ClassVar[str] = "step-time-grows"
    needs: ClassVar[tuple[str, ...]] = ("time/step",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.SLOWDOWN: For("steps take longer and longer"),
    }
    quiet_steps: ClassVar[int] = 100

    correlation: float = 0.75
    growth: float = 1.6

    def init(self) -> StepTimeGrowsState:
        """Before the first step."""
        return StepTimeGrowsState()

    def step(self, state: StepTimeGrowsState, look: Look) -> tuple[StepTimeGrowsState, Sequence[Sighting]]:
        """Look at the time of one more step."""
        if "batch/sequence" in look.view:
            state = state._replace(sequence=max(look.view.value("batch/sequence"), 1.0))
        work = state.work.after(look.view)
        if work.varies and not state.work.varies:
            state = StepTimeGrowsState(sequence=state.sequence)  # what came before was not divided
        if work is not state.work:
            state = state._replace(work=work)
        whole = look.view.value("time/step") / state.sequence / work.of(look.view)  # longer and more take longer
        seconds = own_share(look) * whole
        if not (math.isfinite(seconds) and seconds > 0):
            return state, ()
        values, wholes = (*state.values, seconds), (*state.wholes, whole)
        if len(values) < state.width:
            return state._replace(values=values, wholes=wholes), ()
        shortest, shortest_wholes = (*state.shortest, _quartile(values)), (*state.shortest_wholes, _quartile(wholes))
        width = state.width
        if len(shortest) > _MOST_BLOCKS:
            shortest, shortest_wholes, width = shortest[1::2], shortest_wholes[1::2], 2 * width
        state = StepTimeGrowsState(width, (), shortest, state.sequence, (), shortest_wholes, work)
        times = shortest[1:]
        if len(times) < 10:
            return state, ()
        before, after = _ends(times)
        before_whole, after_whole = _ends(shortest_wholes[1:])
        if not (after > self.growth * before and after_whole > self.growth * before_whole):
            return state, ()
        ranks = np.argsort(np.argsort(times, kind="stable"), kind="stable")
        correlation = float(np.corrcoef(np.arange(len(times)), ranks)[0, 1])
        if not correlation > self.correlation:
            return state, ()
        now = look.view.value("time/step")
        message = f"steps take {after / before:.1f} times as long as at first, {amount(now)} s by now, and still grow"
        evidence = Evidence(tag="time/step", step=look.view.step, value=now, expected=now * before / after)
        return state, (Sighting(Severity.WARNING, message, evidence=(evidence,)),)


def _ends(times: tuple[float, ...]) -> tuple[float, float]:
    """The medians of the first and of the last quarter."""
    quarter = len(times) // 4
    return middle(times[:quarter]), middle(times[-quarter:])


def _quartile(values: tuple[float, ...]) -> float:
    """The lower one, between neighbours in proportion."""
    ordered, place = sorted(values), 0.25 * (len(values) - 1)
    low = int(place)
    return ordered[low] + (ordered[min(low + 1, len(ordered) - 1)] - ordered[low]) * (place - low)
