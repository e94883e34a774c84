"""SYS007 out-of-memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from sonde.core.quantities import count, sized
from sonde.rules.rule import Cause, Claims, Evidence, For, Look, Severity, Sighting
from sonde.rules.step_view import StepView

_KINDS = {
    "memory/activations": "activations and other",
    "memory/parameters": "parameters",
    "memory/gradients": "gradients",
    "memory/optimizer": "optimiser state",
    "memory/buffers": "buffers",
}
_PHASES = {
    "forward": "the forward pass",
    "backward": "the backward pass",
    "optimizer": "the optimiser's step",
}


class OutOfMemoryState(NamedTuple):
    """The micro-batch and its sequence length, as they were last measured."""

    size: float = float("nan")
    sequence: float = float("nan")

    def after(self, view: StepView) -> "OutOfMemoryState":
        """With what one more step tells."""
        if "batch/size" not in view:
            return self
        return OutOfMemoryState(view.value("batch/size"), view.value("batch/sequence"))


@dataclass(frozen=True, kw_only=True, slots=True)
class OutOfMemory:
    """The training ended because an allocation of memory failed.

    What it detects:
        - An exception left the training that is a failed allocation or was caused by one: torch's `OutOfMemoryError`,
          an error of its CPU allocator, or a `MemoryError`.
        - A failure that the training's own code handles does not count.
        - Always critical.

    Why it matters:
        The run is over. What was not saved is lost.

    Evidence:
        The event `out-of-memory`: the step, the device, how much was asked for, in which pass and module, the shapes of
        the batch, and the memory by kind. The kinds are parameters, gradients, optimiser state, buffers, and on a GPU
        the rest of the peak, which is mostly activations. On a CPU the rest of the process is named instead.

    What to do:
        - If activations take most of the memory: a smaller micro-batch with more accumulation, shorter sequences,
          activation checkpointing, bf16.
        - If parameters, gradients and optimiser state take most of it: an optimiser with less state, a sharded one, or
          a smaller model.
        - If memory had been growing for long (SYS004, SYS008): look for what is kept from step to step.

    When it is wrong:
        - The failure itself is never in doubt.
        - Another process may have taken the memory. Then the kinds add up to far less than the device has.

    References:
        PyTorch documentation, CUDA semantics, section memory management.
    """

    code: ClassVar[str] = "SYS007"
    name: ClassVar[str] = "out-of-memory"
    needs: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[str, ...]] = ("batch/size",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.MEMORY_NEAR_LIMIT: For("an allocation failed"),
    }
    quiet_steps: ClassVar[int] = 300

    def init(self) -> OutOfMemoryState:
        """Before the first step."""
        return OutOfMemoryState()

    def step(self, state: OutOfMemoryState, look: Look) -> tuple[OutOfMemoryState, Sequence[Sighting]]:
        """Look at what is said of one more step."""
        state = state.after(look.view)
        events = [fact.data for fact in look.view.facts if fact.kind == "out-of-memory"]
        return state, [_sighting(state, look.view.step, data) for data in events[-1:]]


def _sighting(state: OutOfMemoryState, step: int, data: Mapping[str, Any]) -> Sighting:
    memory = {tag: float(number) for tag, number in dict(data.get("memory") or {}).items()}
    is_host = data.get("device") == "cpu"
    kinds = {tag: memory[tag] for tag in _KINDS if memory.get(tag, 0.0) > 0}
    module = str(data.get("module") or "")
    where = _PHASES.get(str(data.get("phase")), "")
    device = "the host" if is_host else f"the GPU ({data['device']})" if data.get("device") else "the device"
    requested = data.get("requested")
    message = "; ".join(
        part
        for part in (
            f"step {step + 1} ran out of memory on {device}"
            + (f" in {where}" if where else "")
            + (f", asking for {sized(float(requested))} more" if requested else ""),
            _batch(state, dict(data.get("batch") or {})),
            _held(kinds, memory, is_host=is_host),
        )
        if part
    )
    evidence = [
        Evidence(tag=tag, step=step, value=number) for tag, number in sorted(kinds.items(), key=lambda item: -item[1])
    ]
    return Sighting(Severity.CRITICAL, message, where=(module,) if module else (), evidence=tuple(evidence))


def _batch(state: OutOfMemoryState, shapes: Mapping[str, Any]) -> str:
    """The batch of the step, or what is known of those before."""
    if shapes:
        told = (f"{'×'.join(map(str, shape)) or 'a scalar'}{_place(place)}" for place, shape in shapes.items())
        return f"the batch: {', '.join(told)}"
    if state.size > 0:
        long = f" of length {state.sequence:.0f}" if state.sequence > 0 else ""
        return f"the last batch that was measured had {count(state.size, 'example')}{long}"
    return ""


def _place(place: str) -> str:
    return f" (tensor {place})" if place.isdigit() else f" ({place})" if place else ""


def _held(kinds: Mapping[str, float], memory: Mapping[str, float], *, is_host: bool) -> str:
    parts = [f"{_KINDS[tag]} {sized(number)}" for tag, number in kinds.items()]
    rest = memory.get("host/rss", 0.0) - sum(kinds.values())
    if is_host and rest > 0:
        parts.insert(0, f"activations and the rest of the process {sized(rest)}")
    total = memory.get("memory/total", 0.0)
    whole = f" (of {sized(total)})" if total > 0 and not is_host else ""
    return f"memory in use{whole}: {', '.join(parts)}" if parts else ""
