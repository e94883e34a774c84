"""A folder for a script, and models that are too small for two threads."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from .bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    num = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num)
