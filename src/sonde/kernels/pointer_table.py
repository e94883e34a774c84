"""A table of addresses on the device that follows the tensors' addresses without waiting for the device."""

from typing import final

import numpy as np
import torch

from sonde.kernels.uploads import uploads_to


@final
class PointerTable:
    """Addresses on the device, uploaded only where they changed, on the stream on which this was made.

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
        self._uploads = uploads_to(device)

    def follow(self, addresses: list[int]) -> None:
        """Have these in the table from now on."""
        if addresses == self.addresses:
            return
        array = np.array(addresses, np.int64)
        if self._uploads is None:
            self.table.copy_(torch.from_numpy(array))
        else:
            self._uploads.send(array, self.table)
        self.addresses, self.aligned = addresses, int(np.bitwise_or.reduce(array)) % 16 == 0
