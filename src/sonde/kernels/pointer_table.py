"""A table of addresses on the device that follows the tensors' addresses without waiting for the device."""

from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from sonde.core.records import Int64

# Uploads that share an event, and how many such blocks there are at first. A step makes one or two uploads, and the
# device is seldom more than three steps behind.
_BLOCK = 8
_BLOCKS = 2


class _Block(NamedTuple):
    """Pinned memory for a few uploads, and the event that tells when the device has read the last of them."""

    hosts: list[Tensor]
    arrays: list[Int64]
    read: torch.cuda.Event | None


@final
class PointerTable:
    """Addresses on the device, uploaded only where they changed.

    An upload goes through one of a ring of pinned buffers. Buffers whose last upload the device has not reached yet are
    not touched: the ring then grows. That ends soon, since the device is never further behind than the driver's queue
    is long. Nothing waits, and the events are only asked from the thread that calls.

    Args:
        size: Number of addresses.
        device: Where the table lies. On a CPU, where the interpreter runs kernels, it is plain memory.

    Attributes:
        table: int64 (size,), holding the addresses when work on the current stream reads it.
        addresses: Those that were given last; none at first.
        aligned: Whether all of them are multiples of 16 bytes.
    """

    def __init__(self, size: int, device: torch.device) -> None:
        self.table = torch.zeros(size, dtype=torch.int64, device=device)
        self.addresses: list[int] = []
        self.aligned = True
        self._size = size
        self._pinned = device.type == "cuda"
        self._blocks = [self._new_block() for _ in range(_BLOCKS)]
        self._block = self._place = 0

    def follow(self, addresses: list[int]) -> None:
        """Have these in the table from now on."""
        if addresses == self.addresses:
            return
        if self._place == _BLOCK:
            self._turn()
        hosts, arrays, read = self._blocks[self._block]
        array = arrays[self._place]
        array[:] = addresses
        self.table.copy_(hosts[self._place], non_blocking=True)
        self._place += 1
        if read is not None and self._place == _BLOCK:
            read.record()
        self.addresses, self.aligned = addresses, int(np.bitwise_or.reduce(array)) % 16 == 0

    def _turn(self) -> None:
        following = (self._block + 1) % len(self._blocks)
        read = self._blocks[following].read
        if read is not None and not read.query():  # type: ignore[no-untyped-call]  # torch leaves it untyped
            following = self._block + 1
            self._blocks.insert(following, self._new_block())
        self._block, self._place = following, 0

    def _new_block(self) -> _Block:
        hosts = list(torch.zeros(_BLOCK, self._size, dtype=torch.int64, pin_memory=self._pinned))
        # torch leaves events untyped
        event = torch.cuda.Event() if self._pinned else None  # type: ignore[no-untyped-call]
        arrays: list[Int64] = [host.numpy() for host in hosts]
        return _Block(hosts, arrays, event)
