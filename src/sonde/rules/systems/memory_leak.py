"""SYS004 memory-leak."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.causes import Cause
from sonde.core.findings import Evidence, Severity
from sonde.core.records import Float64
from sonde.rules.rule import Look, Sighting
from sonde.signals import lines

_TAGS = ("memory/allocated", "host/rss")
_MOST = 48


class MemoryLeakState(NamedTuple):
    """Steps and bytes of each series, oldest first; of long runs every second reading is forgotten."""

    allocated: tuple[tuple[int, float], ...] = ()
    rss: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryLeak:
    """Memory grows at every step and does not stop.

    What it detects:
        The memory that tensors occupy on a GPU, or that the process holds on the host, after the first quarter of the
        readings: `min_readings` of them over `min_steps` steps at least, a line with a rising slope (|t| > 5, errors
        allow for autocorrelation), growth in each third of the time, the last at least half as fast as the first, of
        `least_growth` of its size (and 30 MB) altogether.

    Why it matters:
        The process will be killed when memory is used up, mostly hours later and far from the line that does it.

    Evidence:
        `memory/allocated` or `host/rss` over steps, in bytes a step.

    What to do:
        Look for tensors that are kept with their graph (`losses.append(loss)`: append `loss.item()` or
        `loss.detach()`), for `retain_graph=True`, lists in modules, caches without a limit.

    When it is wrong:
        A replay buffer or a cache that is still filling grows in the same way until it is full; an allocator that warms
        up, or examples that become larger, too.

    References:
        PyTorch documentation, Frequently asked questions, "My model reports cuda runtime error(2): out of memory".
    """

    code: ClassVar[str] = "SYS004"
    name: ClassVar[str] = "memory-leak"
    needs: ClassVar[tuple[str, ...]] = ("host/rss",)
    causes: ClassVar[tuple[Cause, ...]] = (Cause.MEMORY_LEAK,)
    quiet_steps: ClassVar[int] = 300

    min_readings: int = 9
    min_steps: int = 150
    least_growth: float = 0.02

    def init(self) -> MemoryLeakState:
        """Before the first step."""
        return MemoryLeakState()

    def step(self, state: MemoryLeakState, look: Look) -> tuple[MemoryLeakState, Sequence[Sighting]]:
        """Look at the memory of one more step, where it was measured."""
        histories, sightings = list(state), []
        for place, tag in enumerate(_TAGS):
            value = look.scene.value(tag)
            if not (math.isfinite(value) and value > 0):
                continue
            history = (*histories[place], (look.scene.step, value))
            histories[place] = history if len(history) <= _MOST else history[1::2]
            if sighting := self._judge(tag, np.array(histories[place]), look.scene.step):
                sightings.append(sighting)
        return MemoryLeakState(*histories), sightings

    def _judge(self, tag: str, readings: Float64, step: int) -> Sighting | None:
        settled = readings[len(readings) // 4 :]
        if len(settled) < self.min_readings or settled[-1, 0] - settled[0, 0] < self.min_steps:
            return None
        steps, values = settled[:, 0], settled[:, 1]
        line = lines.fit(steps[None], values[None])
        slope, error = float(line.slope[0]), float(line.slope_error[0])
        third = len(settled) // 3
        ends = [0, third, 2 * third, len(settled) - 1]
        rates = [(values[b] - values[a]) / (steps[b] - steps[a]) for a, b in itertools.pairwise(ends)]
        total = slope * (steps[-1] - steps[0])
        if slope <= 5 * error or min(rates) <= 0 or rates[-1] < 0.5 * rates[0]:
            return None
        if total < max(self.least_growth * float(np.median(values)), 3e7):
            return None
        where = "the GPU" if tag == _TAGS[0] else "the host"
        message = (
            f"memory on {where} grows by {slope / 1e3:.3g} kB a step, {total / 1e6:.3g} MB since step {steps[0]:.0f}"
        )
        evidence = Evidence(tag=tag, step=step, value=float(values[-1]), expected=float(values[0]))
        return Sighting(Severity.WARNING, message, evidence=(evidence,), since=int(steps[0]))
