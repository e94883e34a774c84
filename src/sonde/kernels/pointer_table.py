"""A table of addresses on the device that follows the tensors' addresses without waiting for the device."""

from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from sonde.core.records import Int64

_SLOTS = 8  # uploads that may be under way at once; a step makes one or two


class _Slot(NamedTuple):
    """Pinned memory for one upload, and the event that tells when the device has read it."""

    host: Tensor
    array: Int64
    read: torch.cuda.Event | None


@final
class PointerTable:
    """Addresses on the device, uploaded only where they changed.

    An upload goes through one of a few pinned buffers. A buffer whose last upload the device has not reached yet is not
    touched: where all are so, the ring grows by one. That ends soon, since the device is never further behind than the
    driver's queue is long. Nothing waits, and the events are only asked from the thread that calls.

    Args:
        size: Number of addresses.
        device: Where the table lies. On a CPU, where the interpreter runs kernels, it is plain memory.
    """

    def __init__(self, size: int, device: torch.device) -> None:
        self._table = torch.zeros(size, dtype=torch.int64, device=device)
        self._known = np.zeros(size, np.int64)
        self._pinned = device.type == "cuda"
        self._slots = self._new_slots(_SLOTS)
        self._next = 0

    def follow(self, addresses: Int64) -> Tensor:
        """The table, int64 (size,), holding the addresses when work on the current stream reads it."""
        if not np.array_equal(addresses, self._known):
            slot = self._free_slot()
            slot.array[:] = addresses
            self._table.copy_(slot.host, non_blocking=True)
            if slot.read is not None:
                slot.read.record()
            self._known = addresses
        return self._table

    def _free_slot(self) -> _Slot:
        for _ in self._slots:
            slot = self._slots[self._next]
            self._next = (self._next + 1) % len(self._slots)
            if slot.read is None or slot.read.query():  # type: ignore[no-untyped-call]  # torch leaves it untyped
                return slot
        (slot,) = self._new_slots(1)
        self._slots.insert(self._next, slot)
        self._next = (self._next + 1) % len(self._slots)
        return slot

    def _new_slots(self, number: int) -> list[_Slot]:
        hosts = torch.zeros(number, len(self._known), dtype=torch.int64, pin_memory=self._pinned)
        # torch leaves events untyped
        events = [torch.cuda.Event() if self._pinned else None for _ in hosts]  # type: ignore[no-untyped-call]
        return [_Slot(host, host.numpy(), event) for host, event in zip(hosts, events, strict=True)]
