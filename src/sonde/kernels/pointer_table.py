"""A table of addresses on the device that follows the tensors' addresses without waiting for the device."""

from collections.abc import Sequence
from typing import final

import numpy as np
import torch

from sonde.kernels.uploads import uploads_to


@final
class PointerTable:
    """Addresses on the device, uploaded only where they changed, on the stream on which this was made.

    Args:
        numels: How many values lie at each address.
        device: Where the table lies. On a CPU, where the interpreter runs kernels, it is plain memory.

    Attributes:
        table: int64 (addresses,), holding the addresses when work on the current stream reads it.
        addresses: Those that were given last; none at first.
        aligned: Whether all of them are multiples of 16 bytes.
    """

    def __init__(self, numels: Sequence[int], device: torch.device) -> None:
        self._numels = numels
        self.table = torch.zeros(len(numels), dtype=torch.int64, device=device)
        self.addresses: list[int] = []
        self.aligned = True
        self._uploads = uploads_to(device)

    def follow(self, addresses: list[int]) -> None:
        """Have these in the table from now on.

        Raises:
            ValueError: there are values, but no memory that holds them.
        """
        if addresses == self.addresses:
            return
        freed = [i for i, address in enumerate(addresses) if not address and self._numels[i]]
        if freed:
            raise ValueError(
                f"tensor {freed[0]} has {self._numels[freed[0]]} values but no memory: its storage was freed."
            )
        array = np.array(addresses, np.int64)
        if self._uploads is None:
            self.table.copy_(torch.from_numpy(array))
        else:
            self._uploads.send(array, self.table)
        self.addresses, self.aligned = addresses, int(np.bitwise_or.reduce(array)) % 16 == 0
