"""Brings a step's numbers from the device to the background thread, without the training thread ever waiting.

On a GPU the numbers of a step are joined into one vector and copied, asynchronously, into a slot of a pinned ring that
was allocated when the watching began; the same stream then writes the slot's flag behind it. The background thread
looks at that flag in memory and makes no CUDA call: a query from another thread would invalidate a capture of the
user's. When all slots wait to be read, the numbers are dropped and counted. On a CPU they are there at once.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
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

    @property
    def patience(self) -> int:
        """How many deliveries may wait before they should be taken."""

    def close(self) -> None:
        """Let go of the memory."""


# Steps that may be on their way. A device is rarely more than a few steps behind its host; a thread that waits for the
# interpreter's lock may be.
_FEWEST_SLOTS, _MOST_SLOTS, _MOST_BYTES = 8, 64, 64_000_000


class AtOnce:
    """For tensors in the memory of the CPU."""

    patience = 16  # a few hundred kilobytes

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


NOTHING: Delivery = _Here(np.empty(0))
"""No numbers."""


# The types that travel as they are, each with the words that a number takes.
_AS_IS: dict[torch.dtype, tuple[np.dtype[Any], int]] = {
    torch.float64: (np.dtype(np.float64), 2),
    torch.float32: (np.dtype(np.float32), 1),
    torch.int64: (np.dtype(np.int64), 2),
    torch.int32: (np.dtype(np.int32), 1),
}


class _Part(NamedTuple):
    """Some numbers of a step as they travel: how many, and of which type."""

    num: int
    dtype: np.dtype[Any]


class PinnedRing:
    """For tensors on a CUDA device.

    Numbers travel as they are, in words of four bytes, so that joining them is one launch whatever their types; the
    background makes float64 of them.

    Args:
        device: Where the tensors are.
        num_values: The most numbers of one step.
    """

    def __init__(self, device: torch.device, num_values: int) -> None:
        num_slots = min(_MOST_SLOTS, max(_FEWEST_SLOTS, _MOST_BYTES // (8 * num_values)))
        # Named since the user may have set another default device.
        pinned = torch.zeros(num_slots, 2 * num_values, dtype=torch.int32, device="cpu", pin_memory=True)
        flags = torch.zeros(num_slots, dtype=torch.int64, device="cpu", pin_memory=True)
        self._num_words = pinned.shape[1]
        self._slots, self._slot_flags = list(pinned), list(flags)
        self._words: npt.NDArray[np.int32] = pinned.numpy()
        self._flags: Int64 = flags.numpy()
        # A slot is used again when it was read. So two signs are enough to tell this time from the last.
        self._signs = list(torch.arange(2, dtype=torch.int64, device=device))
        self._read = [0] * num_slots  # serial number up to which each slot was read
        self._sent = [0] * num_slots
        self._serial = 0

    @property
    def patience(self) -> int:
        """A quarter of the slots: the last is kept for what is essential, and the device needs some."""
        return len(self._slots) // 4

    @torch.no_grad()
    def send(self, parts: Sequence[Tensor], *, essential: bool = False) -> Delivery | None:
        """Start the copy of the numbers; None where no slot is free or they are too many.

        The last quarter of the slots is kept for what is essential.
        """
        num_slots = len(self._slots)
        slot = self._serial % num_slots
        ahead = (slot + (0 if essential else num_slots // 4)) % num_slots
        if self._read[ahead] != self._sent[ahead]:
            return None
        manifest: list[_Part] = []
        words: list[Tensor] = []
        size = 0
        for part in parts:
            kind = _AS_IS.get(part.dtype)
            if kind is None:
                kind, part = _AS_IS[torch.float64], part.double()
            num = part.numel()
            manifest.append(_Part(num, kind[0]))
            size += num * kind[1]
            if kind[0] != np.int32:
                part = (part.contiguous() if part.dim() else part.reshape(1)).view(torch.int32)
            words.append(part)
        if size > self._num_words:
            return None
        # Flat, one behind the other.
        joined = torch._C._nn.flatten_dense_tensors(words)
        self._slots[slot][:size].copy_(joined, non_blocking=True)
        sign = self._serial // num_slots % 2 ^ 1
        self._slot_flags[slot].copy_(self._signs[sign], non_blocking=True)
        self._serial += 1
        self._sent[slot] = self._serial
        return _InSlot(self, slot, self._serial, sign, manifest)

    def arrived(self, slot: int, sign: int) -> bool:
        """Whether a slot's flag has been written."""
        return bool(self._flags[slot] == sign)

    def take(self, slot: int, serial: int, manifest: Sequence[_Part]) -> Float64:
        """A slot's numbers; it is free afterwards."""
        values = np.empty(sum(part.num for part in manifest))
        words, place, word = self._words[slot], 0, 0
        for num, dtype in manifest:
            last = word + num * dtype.itemsize // 4
            values[place : place + num] = words[word:last].view(dtype)
            place, word = place + num, last
        self._read[slot] = serial
        return values

    def close(self) -> None:
        """Let go of the pinned memory."""
        del self._slots, self._slot_flags, self._words, self._flags, self._signs


class _InSlot:
    def __init__(self, ring: PinnedRing, slot: int, serial: int, sign: int, manifest: Sequence[_Part]) -> None:
        self._ring, self._slot, self._serial, self._sign, self._manifest = ring, slot, serial, sign, manifest

    def arrived(self) -> bool:
        return self._ring.arrived(self._slot, self._sign)

    def take(self) -> Float64:
        return self._ring.take(self._slot, self._serial, self._manifest)
