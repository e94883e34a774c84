"""Brings a step's numbers from the device to the background thread, without the training thread ever waiting.

On a GPU the numbers of a step are written, asynchronously, into a slot of a pinned ring that was allocated when the
watching began, and the slot's flag behind them: by one kernel, or else by copies on the same stream. The background
thread looks at that flag in memory and makes no CUDA call: a query from another thread would invalidate a capture of
the user's. When all slots wait to be read, the numbers are dropped and counted. On a CPU they are there at once.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sonde.core.records import Float64, Int64
from sonde.kernels.dispatch import triton_trouble
from sonde.streams.logs import logger

if TYPE_CHECKING:
    from sonde.kernels.triton_send import TritonSend

_log = logger("sonde.monitor")


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
        if len(parts) == 1 and parts[0].dtype is torch.float64 and parts[0].is_cpu:  # as in most steps
            return _Here(parts[0].detach().numpy().reshape(-1).copy())
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
# What lies in between travels along.
_WIDEST_GAP = 4096  # bytes


class Part(NamedTuple):
    """Some numbers of a step as they travel: how many, of which type, and at which word they begin."""

    num: int
    dtype: np.dtype[Any]
    word: int


class Stretch(NamedTuple):
    """Words that lie one behind the other from where a tensor begins: its own, and those of others."""

    first: Tensor
    address: int
    num: int

    def words(self) -> Tensor:
        """As a tensor."""
        own = (self.first if self.first.dim() else self.first.reshape(1)).view(torch.int32)
        return own if own.numel() == self.num else own.as_strided((self.num,), (1,))


@final
class Load:
    """Tensors of a step as words; those that lie one behind the other already, or nearly, are one stretch.

    Args:
        parts: The tensors.

    Attributes:
        stretches: Where their words are. They are sent one behind the other.
        manifest: What those words are.
        num_words: Of all stretches.
    """

    def __init__(self, parts: Sequence[Tensor]) -> None:
        self.stretches: list[Stretch] = []
        self.manifest: list[Part] = []
        self.num_words = 0
        self._first: Tensor | None = None
        self._begin = self._end = self._limit = 0
        """Addresses: of the present stretch, and where its memory ends, or 0 as long as nobody has asked."""
        for part in parts:
            self._add(part)
        self._close()

    def _add(self, part: Tensor) -> None:
        kind = _AS_IS.get(part.dtype)
        if kind is None or not part.is_contiguous():
            kind, part = (kind, part.contiguous()) if kind else (_AS_IS[torch.float64], part.double().contiguous())
        dtype, size = kind
        num, begin = part.numel(), part.data_ptr()
        end = begin + 4 * num * size
        if not (self._first is not None and 0 <= begin - self._end < _WIDEST_GAP and end <= self._memory_end()):
            self._close()
            self._first, self._begin, self._limit = part, begin, 0
        self._end = end
        self.manifest.append(Part(num, dtype, self.num_words + (begin - self._begin) // 4))

    def _memory_end(self) -> int:
        if not self._limit and self._first is not None:
            storage = self._first.untyped_storage()
            self._limit = storage.data_ptr() + storage.nbytes()
        return self._limit

    def _close(self) -> None:
        if self._first is not None:
            num = (self._end - self._begin) // 4
            self.stretches.append(Stretch(self._first, self._begin, num))
            self.num_words += num


def joined(stretches: Sequence[Stretch]) -> Tensor:
    """The words of some stretches, at least one, as one tensor."""
    words: Tensor = torch._C._nn.flatten_dense_tensors([stretch.words() for stretch in stretches])
    return words


def unpacked(words: npt.NDArray[np.int32], manifest: Sequence[Part]) -> Float64:
    """The numbers that travelled as words, in their order."""
    values = np.empty(sum(part.num for part in manifest))
    place = 0
    for num, dtype, word in manifest:
        values[place : place + num] = words[word : word + num * dtype.itemsize // 4].view(dtype)
        place += num
    return values


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
        self._addresses = [(a.data_ptr(), b.data_ptr()) for a, b in zip(self._slots, self._slot_flags, strict=True)]
        self._words: npt.NDArray[np.int32] = pinned.numpy()
        self._flags: Int64 = flags.numpy()
        # A slot is used again when it was read. So two signs are enough to tell this time from the last.
        self._signs = list(torch.arange(2, dtype=torch.int64, device=device))
        self._read = [0] * num_slots  # serial number up to which each slot was read
        self._sent = [0] * num_slots
        self._serial = 0
        self._send, self._devices = _sender(device, pinned, flags), {device.index}

    @property
    def patience(self) -> int:
        """A quarter of the slots: the last is kept for what is essential, and the device needs some."""
        return len(self._slots) // 4

    @torch.no_grad()
    def send(self, parts: Sequence[Tensor], *, essential: bool = False) -> Delivery | None:
        """Start the copy of the numbers; None where no slot is free or they are too many.

        The last quarter of the slots is kept for what is essential.
        """
        if not parts:
            return NOTHING
        num_slots = len(self._slots)
        slot = self._serial % num_slots
        ahead = (slot + (0 if essential else num_slots // 4)) % num_slots
        if self._read[ahead] != self._sent[ahead]:
            return None
        load = Load(parts)
        if load.num_words > self._num_words:
            return None
        sign = self._serial // num_slots % 2 ^ 1
        # A kernel that reads memory of the host that is not pinned takes the training with it.
        if self._send is not None and self._send.is_current and set(map(Tensor.get_device, parts)) == self._devices:
            first, *others = load.stretches
            if len(others) > 1:  # one launch more; mostly there is the loss alone
                rest = joined(others)
                others = [Stretch(rest, rest.data_ptr(), len(rest))]
            _, second, num_second = others[0] if others else first._replace(num=0)
            target, flag = self._addresses[slot]
            self._send(first.address, first.num, second, num_second, target=target, flag=flag, sign=sign)
        else:
            self._slots[slot][: load.num_words].copy_(joined(load.stretches), non_blocking=True)
            self._slot_flags[slot].copy_(self._signs[sign], non_blocking=True)
        self._serial += 1
        self._sent[slot] = self._serial
        return _InSlot(self, slot, self._serial, sign, load.manifest)

    def arrived(self, slot: int, sign: int) -> bool:
        """Whether a slot's flag has been written."""
        return bool(self._flags[slot] == sign)

    def take(self, slot: int, serial: int, manifest: Sequence[Part]) -> Float64:
        """A slot's numbers; it is free afterwards."""
        values = unpacked(self._words[slot], manifest)
        self._read[slot] = serial
        return values

    def close(self) -> None:
        """Let go of the pinned memory."""
        if self._read != self._sent and not torch.cuda.is_current_stream_capturing():
            # Something is still to be written there, by a kernel of which torch's allocator does not know: a copy tells
            # it, and nobody else gets the memory before.
            for pinned in (self._slots[0][:1], self._slot_flags[0]):
                torch.empty_like(pinned, device=self._signs[0].device, pin_memory=False).copy_(
                    pinned, non_blocking=True
                )
        del self._slots, self._slot_flags, self._words, self._flags, self._signs, self._send


def _sender(device: torch.device, target: Tensor, flag: Tensor) -> "TritonSend | None":
    if device.index != torch._C._cuda_getDevice() or triton_trouble(device) is not None:
        return None
    from sonde.kernels.triton_send import TritonSend

    try:
        return TritonSend(device, target, flag)
    except Exception as error:  # whatever Triton, its compiler or the driver raise: torch can copy as well
        _log.warning("numbers are sent by copies: %r", error)
        return None


class _InSlot:
    def __init__(self, ring: PinnedRing, slot: int, serial: int, sign: int, manifest: Sequence[Part]) -> None:
        self._ring, self._slot, self._serial, self._sign, self._manifest = ring, slot, serial, sign, manifest

    def arrived(self) -> bool:
        return self._ring.arrived(self._slot, self._sign)

    def take(self) -> Float64:
        return self._ring.take(self._slot, self._serial, self._manifest)
