"""Numbers from a GPU into memory of the host in one launch, with a flag that tells when they are there."""

from typing import final

import torch
from torch import Tensor

from sonde.kernels.bound_kernel import BoundKernel
from sonde.kernels.triton_kernels import send_words

_AT_ONCE = 4096
_WARPS = 16


@final
class TritonSend:
    """Writes words of two stretches of a device's memory, and a flag behind them, to pinned memory of the host.

    Two copies by torch take three times as long of the host. One program writes: of some hundred kilobytes, in some ten
    microseconds of the device's time.

    Args:
        device: Where the numbers are: the current CUDA device, on which Triton works.
        target: Pinned int32, 16 words at least, and
        flag: pinned int64, into which a trial is written.
    """

    def __init__(self, device: torch.device, target: Tensor, flag: Tensor) -> None:
        self._device = device
        self._fence = torch.zeros(1, dtype=torch.int32, device=device)
        words = torch.zeros(16, dtype=torch.int32, device=device)
        self._kernel = BoundKernel(send_words, (1, 1, 1), lasting=(), constants=(_AT_ONCE,), num_warps=_WARPS)
        self._kernel.find(words, words, target, flag, self._fence, 8, 8, 0)
        self._fence_at = self._fence.data_ptr()

    @property
    def is_current(self) -> bool:
        """Whether it can be called now."""
        return torch._C._cuda_getDevice() == self._device.index

    def __call__(
        self, first: int, num_first: int, second: int, num_second: int, *, target: int, flag: int, sign: int
    ) -> None:
        """Send them on the current stream.

        Args:
            first: Address of the words of one stretch, and
            num_first: how many there are.
            second: Of the other, which goes behind it, and
            num_second: how many; 0 where there is none.
            target: Address where they go.
            flag: Address of the flag.
            sign: What is written there when they have arrived.
        """
        stream = torch._C._cuda_getCurrentRawStream(self._device.index)
        self._kernel.at(stream, first, second, target, flag, self._fence_at, num_first, num_second, sign)
