"""Settings of the monitor's tests."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    # Tiny tensors gain nothing from threads that wait for each other on a busy machine: it takes ten times as long.
    num = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num)
