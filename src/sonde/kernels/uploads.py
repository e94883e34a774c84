"""Tables that are made on the host, brought to a device in the middle of a training."""

import functools
import threading
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sonde.core.records import Int64

# 1 MiB a block, which holds the chunks of some billion values. A step uploads a few small tables, and the device is
# seldom more than three steps behind.
_BLOCK_WORDS = 1 << 17
_BLOCKS = 4


class _Block(NamedTuple):
    """Pinned memory for some uploads, and the event that tells when the device has read the last of them."""

    host: Tensor
    array: Int64
    read: torch.cuda.Event


@final
class Uploads:
    """The way of tables to a CUDA device, on one stream.

    All of them go through one ring of pinned memory, asked for when this is made: to ask for some in the middle of a
    training stops it. Blocks whose last upload the device has not reached yet are not touched: the ring then grows.
    That ends soon, since the device is never further behind than the driver's queue is long. Nothing waits.

    Args:
        device: Where they go.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._blocks = [_new_block(_BLOCK_WORDS) for _ in range(_BLOCKS)]
        self._block = self._place = 0
        self._lock = threading.Lock()  # autograd calls hooks in a thread of its own

    def send(self, table: npt.NDArray[Any], to: Tensor) -> None:
        """Have a table's values, of 8 bytes each, in a tensor of its shape and type when the stream reads that."""
        words = table.reshape(-1).view(np.int64)
        with self._lock:
            if self._place + len(words) > len(self._blocks[self._block].array):
                self._turn(len(words))
            host, array, _ = self._blocks[self._block]
            begin, self._place = self._place, self._place + len(words)
            array[begin : self._place] = words
            to.view(-1).view(torch.int64).copy_(host[begin : self._place], non_blocking=True)

    def _turn(self, num_words: int) -> None:
        """Go on with the next block, or with a new one where that is too small or the device has not read it yet."""
        stream = torch.cuda.current_stream(self._device)
        self._blocks[self._block].read.record(stream)
        following = (self._block + 1) % len(self._blocks)
        _, array, read = self._blocks[following]
        if len(array) < num_words or not read.query():  # type: ignore[no-untyped-call]  # torch leaves it untyped
            following = self._block + 1
            self._blocks.insert(following, _new_block(max(num_words, _BLOCK_WORDS)))
        self._block, self._place = following, 0


def _new_block(num_words: int) -> _Block:
    host = torch.zeros(num_words, dtype=torch.int64, device="cpu", pin_memory=True)
    return _Block(host, host.numpy(), torch.cuda.Event())  # type: ignore[no-untyped-call]


@functools.cache
def _uploads(device: torch.device, stream: int) -> Uploads:
    with torch.inference_mode(False):  # what is made inside of it could not be used outside
        return Uploads(device)


def uploads_to(device: torch.device) -> Uploads | None:
    """The way to a CUDA device on its current stream; None where tables need not travel."""
    if device.type != "cuda":
        return None
    return _uploads(device, torch._C._cuda_getCurrentRawStream(device.index))


def uploaded(table: npt.NDArray[Any], device: torch.device) -> Tensor:
    """A copy of a table, of 8 bytes a value, on a device: there when work on the current stream reads it.

    Example:
        >>> uploaded(np.arange(3), torch.device("cpu"))
        tensor([0, 1, 2])
    """
    host = torch.from_numpy(table)
    uploads = uploads_to(device)
    if uploads is None:
        return host.clone()
    there = torch.empty(host.shape, dtype=host.dtype, device=device)
    uploads.send(table, there)
    return there
