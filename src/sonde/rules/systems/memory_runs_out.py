"""SYS008 memory-runs-out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import sized
from sonde.rules.history.growth import Growth, History, extended, steady_growth
from sonde.rules.rule import Cause, Claims, Evidence, For, Look, Severity, Sighting


class MemoryRunsOutState(NamedTuple):
    """The readings of each series, and how much room there is."""

    allocated: History = ()
    rss: History = ()
    taken: History = ()
    """Of the host: what is available, with its sign changed, so that it grows as memory is taken."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryRunsOut:
    """At the pace at which it grows, memory will be used up soon.

    What it detects:
        - GPU: `memory/allocated` grows steadily, by the test of SYS004. At that pace it fills the room between the peak
          and `memory/total` within `horizon` times the steps over which it grew.
        - Host: `host/rss` grows steadily, and `host/available` falls steadily and will be gone as soon.
        - Critical: this is within `critical` times those steps. Otherwise it is a warning.

    Why it matters:
        It says when the run will end, and whether this is before its last step. There is still time to save a
        checkpoint.

    Evidence:
        `memory/peak` against `memory/total`, or `host/available`; the growth in bytes a step, and the steps that are
        left.

    What to do:
        - Save a checkpoint.
        - Look for what is kept from step to step (SYS004).
        - Restart from the checkpoint.

    When it is wrong:
        - A replay buffer or a cache that fills up grows in the same way, and stops when it is full.
        - On the host the memory of other processes counts too, and they may end earlier.

    References:
        PyTorch documentation, Frequently asked questions, "My model reports cuda runtime error(2): out of memory".
    """

    code: ClassVar[str] = "SYS008"
    name: ClassVar[str] = "memory-runs-out"
    needs: ClassVar[tuple[str, ...]] = ("memory/allocated", "host/available")
    reads: ClassVar[tuple[str, ...]] = ("memory/allocated", "host/rss")
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.MEMORY_LEAK: For("memory grows until it is used up"),
    }
    quiet_steps: ClassVar[int] = 300

    min_readings: int = 9
    min_steps: int = 150
    least_growth: float = 0.02
    horizon: float = 1.0
    critical: float = 0.1

    def init(self) -> MemoryRunsOutState:
        """Before the first step."""
        return MemoryRunsOutState()

    def step(self, state: MemoryRunsOutState, look: Look) -> tuple[MemoryRunsOutState, Sequence[Sighting]]:
        """Look at the memory of one more step, where it was measured."""
        view, sightings = look.view, []
        allocated, room = view.value("memory/allocated"), view.value("memory/total") - view.value("memory/peak")
        if allocated > 0:
            state = state._replace(allocated=extended(state.allocated, view.step, allocated))
            growth = self._growth(state.allocated) if math.isfinite(room) else None
            if growth is not None and (severity := self._judge(room, growth)):
                peak, total = view.value("memory/peak"), view.value("memory/total")
                evidence = Evidence(tag="memory/peak", step=view.step, value=peak, expected=total)
                sightings.append(_sighting("the GPU", severity, room, growth, evidence))
        rss, available = view.value("host/rss"), view.value("host/available")
        if rss > 0 and math.isfinite(available):
            state = state._replace(
                rss=extended(state.rss, view.step, rss), taken=extended(state.taken, view.step, -available)
            )
            growth = self._growth(state.taken) if self._growth(state.rss) is not None else None
            if growth is not None and (severity := self._judge(available, growth)):
                evidence = Evidence(tag="host/available", step=view.step, value=available, expected=-growth.first)
                sightings.append(_sighting("the host", severity, available, growth, evidence))
        return state, sightings

    def _growth(self, history: History) -> Growth | None:
        return steady_growth(
            history, min_readings=self.min_readings, min_steps=self.min_steps, least_growth=self.least_growth
        )

    def _judge(self, room: float, growth: Growth) -> Severity | None:
        left = max(room, 0.0) / growth.slope
        if left > self.horizon * growth.steps:
            return None
        return Severity.CRITICAL if left <= self.critical * growth.steps else Severity.WARNING


def _sighting(where: str, severity: Severity, room: float, growth: Growth, evidence: Evidence) -> Sighting:
    left = max(room, 0.0)
    steps = float(f"{left / growth.slope:.2g}")  # as far as it is known
    message = (
        f"memory on {where} will be used up in about {steps:,.0f} steps: {sized(left)} are left, "
        f"and each step takes {sized(growth.slope)} more"
    )
    return Sighting(severity, message, evidence=(evidence,), since=growth.since)
