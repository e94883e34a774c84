"""The table of addresses, on plain memory; what needs a device is in test_gpu.py."""

import pytest
import torch

from sonde.kernels.pointer_table import PointerTable


def test_the_table_holds_the_addresses_given_last() -> None:
    table = PointerTable([1] * 3, torch.device("cpu"))
    for i in range(50):
        addresses = [i + 1, 2, i // 2 + 1]
        for _ in range(2):
            table.follow(list(addresses))
            assert table.table.tolist() == addresses


def test_addresses_are_aligned_where_all_are_multiples_of_16() -> None:
    table = PointerTable([0, 1], torch.device("cpu"))
    for addresses, aligned in (([32, 64], True), ([32, 72], False), ([0, 48], True)):
        table.follow(addresses)
        assert table.aligned is aligned


def test_values_without_memory_are_refused() -> None:
    table = PointerTable([0, 5], torch.device("cpu"))
    with pytest.raises(ValueError, match="tensor 1 has 5 values but no memory"):
        table.follow([0, 0])
    assert table.addresses == []
