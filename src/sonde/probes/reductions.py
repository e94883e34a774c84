"""How long data-parallel ranks take to reduce their gradients, as torch itself times it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from sonde.probes.probe import Reading, known, table_row

_YIELDS = {
    "time/reduction": "seconds from the first reduction of gradients in a backward to the end of the last",
    "time/reduction_exposed": "of those, the seconds after the backward has nothing left to compute",
}
_NO_WRAPPER = "no `DistributedDataParallel` is among the watched models: give the wrapper itself to `watch`"
_UNTIMED = "torch does not time the reductions of this `DistributedDataParallel`"
_ENOUGH = 2  # looks: torch times the first iterations, and knows the times of one in the next


@final
class Reductions:
    """Reads what `DistributedDataParallel` has noted of its own backward: a probe (see `Probe`) with one slot.

    Torch times the first ten iterations of a wrapper and every hundredth after that; a row is of the last that it
    timed, and comes once. Nothing is added to the training. Other ways of splitting it (FSDP) are not timed by torch.

    Args:
        models: By name.
        is_parallel: Whether several processes train together.
    """

    yields = _YIELDS

    def __init__(self, models: Mapping[str, nn.Module], is_parallel: Callable[[], bool] | None = None) -> None:
        self._wrappers = [
            module
            for model in models.values()
            for module in model.modules()
            if isinstance(module, DistributedDataParallel)
        ]
        self._reason = "" if self._wrappers or not (is_parallel or _is_parallel)() else _NO_WRAPPER
        self._last: list[int] = [0] * len(self._wrappers)
        self._num_looks = 0
        self._armed = False

    @property
    def num_slots(self) -> int:
        """All is measured together."""
        return 1 if self._wrappers else 0

    def arm(self, slots: Sequence[int]) -> None:
        """Nothing has to be hooked."""
        self._armed = bool(slots)

    def collect(self) -> Sequence[Reading]:
        """The times of the last iteration that torch timed, summed over the wrappers."""
        armed, self._armed = self._armed, False
        if not armed:
            return []
        notes: list[dict[str, Any]] = [dict(w._get_ddp_logging_data()) for w in self._wrappers]  # type: ignore[no-untyped-call]
        iterations = [int(note.get("iteration", 0)) for note in notes]
        timed = [note for note in notes if note.get("backward_comm_time", 0) > 0]
        self._num_looks += 1
        if not timed:
            self._reason = _UNTIMED if self._num_looks >= _ENOUGH else ""
            return []
        if iterations == self._last:
            return []
        self._last, self._reason = iterations, ""
        whole = sum(note["backward_comm_time"] for note in timed)
        hidden = sum(note.get("backward_compute_comm_overlap_time", 0) for note in timed)
        seconds = (whole / 1e9, max(whole - hidden, 0) / 1e9)  # torch has nanoseconds
        return [known(table_row("reductions", dict(zip(_YIELDS, seconds, strict=True))))]

    def not_measured(self) -> Mapping[str, str]:
        """Where nobody times it."""
        return dict.fromkeys(_YIELDS, self._reason) if self._reason else {}

    def close(self) -> None:
        """Let go of the wrappers."""
        self._wrappers, self._armed = [], False


def _is_parallel() -> bool:
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1
