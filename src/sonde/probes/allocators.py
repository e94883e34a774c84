"""What torch's allocator holds of each GPU."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np
import torch

from sonde.probes.devices import gpus_of, suffixes
from sonde.probes.probe import Reading, Row, columns_at, known

_YIELDS = {
    "memory/allocated": "bytes of the GPU that tensors occupy now",
    "memory/reserved": "bytes of the GPU that torch holds now, for tensors and in stock",
    "memory/peak": "the most bytes that tensors occupied since the process began or its user reset torch's peak",
    "memory/total": "bytes of memory that the GPU has",
}
_LOOKED_FOR = 10  # turns after which the devices are asked for again: a model may be spread over more of them later


class Allocated(NamedTuple):
    """Bytes of a GPU."""

    current: float
    reserved: float
    peak: float
    total: float


def allocated(device: torch.device) -> Allocated:
    """From the allocator's own books, which ask nothing of the device."""
    stats: Any = torch.cuda.memory_stats_as_nested_dict(device)
    of_tensors, held = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
    total = torch.cuda.get_device_properties(device).total_memory
    return Allocated(float(of_tensors["current"]), float(held["current"]), float(of_tensors["peak"]), float(total))


@final
class Allocators:
    """Asks torch's allocator for each GPU of the training, at the end of an iteration; its peak is never reset.

    Args:
        devices: Those that parameters lie on; others than GPUs are left out.
    """

    yields = _YIELDS
    """The tags end in `@cuda:0` and so on where there are several GPUs."""
    num_slots = 1

    def __init__(self, devices: Callable[[], Sequence[torch.device]]) -> None:
        self._devices = devices
        self._gpus: list[torch.device] = []
        self._num_turns = 0
        self._armed = False

    def arm(self, slots: Sequence[int]) -> None:
        """Nothing has to be hooked."""
        self._armed = bool(slots)
        if slots:
            if self._num_turns % _LOOKED_FOR == 0:
                self._gpus = gpus_of(self._devices())
            self._num_turns += 1

    def collect(self) -> Sequence[Reading]:
        """The numbers as they are now."""
        armed, self._armed = self._armed, False
        if not armed or not self._gpus:
            return []
        columns = columns_at("allocator", tuple(_YIELDS), tuple(suffixes(self._gpus)))
        return [known(Row(columns, np.array([allocated(gpu) for gpu in self._gpus], np.float64).reshape(-1)))]

    def not_measured(self) -> Mapping[str, str]:
        """Nothing: where there is no GPU there is no allocator to ask, and nothing is missed."""
        return {}

    def close(self) -> None:
        """Let go of the devices."""
        self._armed, self._gpus, self._devices = False, [], list
