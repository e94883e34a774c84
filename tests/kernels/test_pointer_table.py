"""The table of addresses, on plain memory; what needs a device is in test_gpu.py."""

import numpy as np
import torch

from sonde.kernels.pointer_table import PointerTable


def test_the_table_holds_the_addresses_given_last() -> None:
    table = PointerTable(3, torch.device("cpu"))
    for i in range(30):
        addresses = np.array([i, 2, i // 2], dtype=np.int64)
        assert table.follow(addresses).tolist() == addresses.tolist()
        assert table.follow(addresses.copy()).tolist() == addresses.tolist()
