"""SYS004 memory-leak."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Severity, Sighting
from sonde.rules.systems.growth import History, extended, steady_growth

_TAGS = ("memory/allocated", "host/rss")


class MemoryLeakState(NamedTuple):
    """Steps and bytes of each series, oldest first; of long runs every second reading is forgotten."""

    allocated: History = ()
    rss: History = ()


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
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.MEMORY_LEAK: For("memory grows linearly"),
        Cause.SLOWDOWN: Against("the leak may explain it"),
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
            value = look.scene.value(tag)
            if not (math.isfinite(value) and value > 0):
                continue
            histories[place] = extended(histories[place], look.scene.step, value)
            if sighting := self._judge(tag, histories[place], look.scene.step):
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
            f"memory on {where} grows by {growth.slope / 1e3:.3g} kB a step, "
            f"{growth.total / 1e6:.3g} MB since step {growth.since}"
        )
        evidence = Evidence(tag=tag, step=step, value=growth.last, expected=growth.first)
        return Sighting(Severity.WARNING, message, evidence=(evidence,), since=growth.since)
