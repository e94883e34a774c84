"""SYS005 memory-near-limit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import share as percent
from sonde.core.quantities import sized
from sonde.rules.rule import Cause, Claims, Evidence, For, Look, Severity, Sighting


class MemoryNearLimitState(NamedTuple):
    """How many readings in a row were near the limit."""

    num_high: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryNearLimit:
    """The GPU's memory is nearly used up by tensors.

    What it detects:
        - The peak of the memory that tensors occupied (`memory/peak`) is above `limit` of `memory/total`, at two
          measurements in a row.
        - Memory that torch only holds in reserve does not count: it can be given back.
        - Always a warning.

    Why it matters:
        A batch that is a little larger ends the run.

    Evidence:
        `memory/peak` against `memory/total`.

    What to do:
        - Use a smaller micro-batch with more accumulation.
        - Use activation checkpointing, bf16, or an optimiser with less state.

    When it is wrong:
        - If all batches have one size and the peak was reached long ago, nothing will happen.
        - A peak from before the watching began counts too.

    References:
        PyTorch documentation, CUDA semantics, section memory management.
    """

    code: ClassVar[str] = "SYS005"
    name: ClassVar[str] = "memory-near-limit"
    needs: ClassVar[tuple[str, ...]] = ("memory/peak", "memory/total")
    reads: ClassVar[tuple[str, ...]] = needs
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.MEMORY_NEAR_LIMIT: For("tensors take nearly all memory"),
    }
    quiet_steps: ClassVar[int] = 300

    limit: float = 0.95

    def init(self) -> MemoryNearLimitState:
        """Before the first step."""
        return MemoryNearLimitState()

    def step(self, state: MemoryNearLimitState, look: Look) -> tuple[MemoryNearLimitState, Sequence[Sighting]]:
        """Look at the memory of one more step, where it was measured."""
        peak, total = look.view.value("memory/peak"), look.view.value("memory/total")
        if not total > 0 or not peak > 0:
            return state, ()
        num = state.num_high + 1 if peak > self.limit * total else 0
        if num < 2:
            return MemoryNearLimitState(num), ()
        message = f"tensors took {percent(peak / total)} of the GPU's {sized(total)} at their peak"
        evidence = Evidence(tag="memory/peak", step=look.view.step, value=peak, expected=self.limit * total)
        return MemoryNearLimitState(num), (Sighting(Severity.WARNING, message, evidence=(evidence,)),)
