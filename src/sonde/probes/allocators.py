"""What torch's allocator holds of each GPU."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np
import torch

from sonde.core.frames import Columns
from sonde.probes.devices import suffixes
from sonde.probes.probe import Reading, Row

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

    def __init__(self, devices: Callable[[], Sequence[torch.device]]) -> None:
        self._devices = devices
        self._gpus: list[torch.device] = []
        self._num_turns = 0
        self._armed = False
        self._columns: dict[tuple[torch.device, ...], Columns] = {}

    @property
    def yields(self) -> Mapping[str, str]:
        """The tags that may come of it; they end in `@cuda:0` and so on where there are several GPUs."""
        return _YIELDS

    @property
    def num_slots(self) -> int:
        """All is measured together."""
        return 1

    def arm(self, slots: Sequence[int]) -> None:
        """Nothing has to be hooked."""
        self._armed = bool(slots)
        if slots:
            if self._num_turns % _LOOKED_FOR == 0:
                gpus = {device for device in self._devices() if device.type == "cuda"}
                self._gpus = sorted(gpus, key=lambda device: device.index)
            self._num_turns += 1

    def collect(self) -> Sequence[Reading]:
        """The numbers as they are now."""
        armed, self._armed = self._armed, False
        if not armed or not self._gpus:
            return []
        values = np.array([number for gpu in self._gpus for number in allocated(gpu)], np.float64)
        row = Row(self._table(), values)
        return [Reading((), lambda _: [row])]

    def not_measured(self) -> Mapping[str, str]:
        """Nothing: where there is no GPU there is no allocator to ask, and nothing is missed."""
        return {}

    def close(self) -> None:
        """Let go of the devices."""
        self._armed, self._gpus, self._devices = False, [], list

    def _table(self) -> Columns:
        key = tuple(self._gpus)
        if key not in self._columns:
            tags = itertools.chain.from_iterable((tag + at for tag in _YIELDS) for at in suffixes(key))
            self._columns[key] = Columns("allocator", tuple(tags))
        return self._columns[key]
