"""SYS004 memory-leak."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import sized
from sonde.rules.history.growth import History, extended, steady_growth
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Severity, Sighting

_TAGS = ("memory/allocated", "host/rss")


class MemoryLeakState(NamedTuple):
    """Steps and bytes of each series, oldest first; of long runs every second reading is forgotten."""

    allocated: History = ()
    rss: History = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryLeak:
    """Memory grows at every step and does not stop.

    What it detects:
        - It looks at the memory that tensors occupy on a GPU (`memory/allocated`), and at the memory of the process on
          the host (`host/rss`), after the first quarter of the measurements.
        - There are at least `min_readings` of them over at least `min_steps` steps.
        - A line through them rises (|t| > 5, allowing for autocorrelation).
        - The memory grows in each third of the time, in the last third at least half as fast as in the first.
        - It grows by `least_growth` of its size and by 30 MB altogether.
        - Always a warning.

    Why it matters:
        The process will be killed when the memory is used up, mostly hours later and far from the line that causes the
        growth.

    Evidence:
        `memory/allocated` or `host/rss` over steps, in bytes a step.

    What to do:
        - Look for tensors that are kept with their graph: instead of `losses.append(loss)`, append `loss.item()` or
          `loss.detach()`.
        - Look for `retain_graph=True`, for lists in modules, and for caches without a limit.

    When it is wrong:
        - A replay buffer or a cache that is still filling grows in the same way until it is full.
        - So do an allocator that warms up, and examples that become larger.

    References:
        PyTorch documentation, Frequently asked questions, "My model reports cuda runtime error(2): out of memory".
    """

    code: ClassVar[str] = "SYS004"
    name: ClassVar[str] = "memory-leak"
    needs: ClassVar[tuple[str, ...]] = ("host/rss",)
    reads: ClassVar[tuple[str, ...]] = ("memory/allocated", "host/rss")
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.MEMORY_LEAK: For("memory grows along a line"),
        Cause.SLOWDOWN: Against("the leak may explain the slowdown"),
    }
    quiet_steps: ClassVar[int] = 300

    min_readings: int = 9
    min_steps: int = 75
    least_growth: float = 0.02

    def init(self) -> MemoryLeakState:
        """Before the first step."""
        return MemoryLeakState()

    def step(self, state: MemoryLeakState, look: Look) -> tuple[MemoryLeakState, Sequence[Sighting]]:
        """Look at the memory of one more step, where it was measured."""
        histories, sightings = list(state), []
        for place, tag in enumerate(_TAGS):
            value = look.view.value(tag)
            if not (math.isfinite(value) and value > 0):
                continue
            histories[place] = extended(histories[place], look.view.step, value)
            if sighting := self._judge(tag, histories[place], look.view.step):
                sightings.append(sighting)
        return MemoryLeakState(*histories), sightings

    def _judge(self, tag: str, history: History, step: int) -> Sighting | None:
        growth = steady_growth(
            history, min_readings=self.min_readings, min_steps=self.min_steps, least_growth=self.least_growth
        )
        if growth is None:
            return None
        where = "the GPU" if tag == _TAGS[0] else "the host"
        message = (
            f"memory on {where} grows by {sized(growth.slope)} a step, "
            f"and has grown by {sized(growth.total)} since step {growth.since:,}"
        )
        evidence = Evidence(tag=tag, step=step, value=growth.last, expected=growth.first)
        return Sighting(Severity.WARNING, message, evidence=(evidence,), since=growth.since)
