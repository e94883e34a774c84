"""Brings a step's numbers from the device to the background thread, without the training thread ever waiting.

On a GPU the numbers of a step are joined into one vector and copied, asynchronously, into a slot of a pinned ring that
was allocated when the watching began; the same stream then writes the slot's serial number behind it. The background
thread looks at that word in memory and makes no CUDA call: a query from another thread would invalidate a capture of
the user's. When all slots wait to be read, the numbers are dropped and counted. On a CPU they are there at once.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from sonde.core.records import Float64, Int64


class Delivery(Protocol):
    """Numbers on their way."""

    def arrived(self) -> bool:
        """Whether `take` may be called."""

    def take(self) -> Float64:
        """The numbers; once."""


class Transport(Protocol):
    """Sends vectors of numbers."""

    def send(self, parts: Sequence[Tensor], *, essential: bool = False) -> Delivery | None:
        """Send some tensors as one vector of float64; None where there is no room, later so if it is essential."""

    def close(self) -> None:
        """Let go of the memory."""


# Steps that may be on their way. A device is rarely more than a few steps behind its host; a thread that waits for the
# interpreter's lock may be.
_FEWEST_SLOTS, _MOST_SLOTS, _MOST_BYTES = 8, 64, 64_000_000


class AtOnce:
    """For tensors in the memory of the CPU."""

    def send(self, parts: Sequence[Tensor], *, essential: bool = False) -> Delivery | None:
        """Copy the numbers now: the tensors may change as soon as this returns."""
        pieces = [part.detach().reshape(-1).to("cpu", torch.float64).numpy() for part in parts]
        return _Here(np.concatenate([np.empty(0), *pieces]))

    def close(self) -> None:
        """Nothing is held."""


class _Here:
    def __init__(self, values: Float64) -> None:
        self._values = values

    def arrived(self) -> bool:
        return True

    def take(self) -> Float64:
        return self._values


class PinnedRing:
    """For tensors on a CUDA device.

    Args:
        device: Where the tensors are.
        num_values: The most numbers of one step.
    """

    def __init__(self, device: torch.device, num_values: int) -> None:
        num_slots = min(_MOST_SLOTS, max(_FEWEST_SLOTS, _MOST_BYTES // (8 * num_values)))
        # Named since the user may have set another default device.
        self._pinned = torch.zeros(num_slots, num_values, dtype=torch.float64, device="cpu", pin_memory=True)
        self._serial_pinned = torch.zeros(num_slots, dtype=torch.int64, device="cpu", pin_memory=True)
        self._wide = torch.empty(0, dtype=torch.float64, device=device)
        self._values: Float64 = self._pinned.numpy()
        self._serials: Int64 = self._serial_pinned.numpy()
        self._counter = torch.zeros((), dtype=torch.int64, device=device)
        self._read = np.zeros(num_slots, np.int64)  # serial number up to which each slot was read
        self._sent = np.zeros(num_slots, np.int64)
        self._serial = 0
        self._device = device

    def send(self, parts: Sequence[Tensor], *, essential: bool = False) -> Delivery | None:
        """Start the copy of the numbers; None where no slot is free or they are too many.

        The last quarter of the slots is kept for what is essential.
        """
        slot = self._serial % len(self._sent)
        size = sum(part.numel() for part in parts)
        ahead = (slot + (0 if essential else len(self._sent) // 4)) % len(self._sent)
        if self._read[ahead] != self._sent[ahead] or size > self._pinned.shape[1]:
            return None
        with torch.no_grad(), torch.cuda.device(self._device):
            joined = torch.cat([self._wide, *(part.detach().reshape(-1) for part in parts)])
            self._pinned[slot, :size].copy_(joined, non_blocking=True)
            self._counter.add_(1)
            self._serial_pinned[slot].copy_(self._counter, non_blocking=True)
        self._serial += 1
        self._sent[slot] = self._serial
        return _InSlot(self, slot, self._serial, size)

    def arrived(self, slot: int, serial: int) -> bool:
        """Whether a slot's word has been written."""
        return bool(self._serials[slot] == serial)

    def take(self, slot: int, serial: int, size: int) -> Float64:
        """A slot's numbers; it is free afterwards."""
        values = self._values[slot, :size].copy()
        self._read[slot] = serial
        return values

    def close(self) -> None:
        """Let go of the pinned memory."""
        del self._pinned, self._serial_pinned, self._values, self._serials, self._counter, self._wide


class _InSlot:
    def __init__(self, ring: PinnedRing, slot: int, serial: int, size: int) -> None:
        self._ring, self._slot, self._serial, self._size = ring, slot, serial, size

    def arrived(self) -> bool:
        return self._ring.arrived(self._slot, self._serial)

    def take(self) -> Float64:
        return self._ring.take(self._slot, self._serial, self._size)
