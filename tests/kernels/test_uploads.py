"""Tables on their way to a device, which may be far behind the host."""

import numpy as np
import pytest
import torch

from sonde.kernels.uploads import Uploads, uploaded

_LONG = 200_000_000  # cycles: a tenth of a second


def test_a_table_on_a_cpu_is_a_copy() -> None:
    table = np.arange(6).reshape(2, 3)
    there = uploaded(table, torch.device("cpu"))
    table[:] = 0
    assert there.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_tables_arrive_whole_however_far_the_device_is_behind() -> None:
    device = torch.device("cuda", 0)
    uploads, generator = Uploads(device), np.random.default_rng(0)
    sizes = [*generator.integers(1, 3_000, 60), 20_000, 0, *generator.integers(1, 3_000, 60)]
    tables = [generator.standard_normal((int(size), 2)) for size in sizes]
    there = [torch.zeros(table.shape, dtype=torch.float64, device=device) for table in tables]
    for _ in range(3):
        torch.cuda._sleep(_LONG)  # type: ignore[no-untyped-call]
        for table, to in zip(tables, there, strict=True):
            uploads.send(table, to)
        for table, to in zip(tables, there, strict=True):
            np.testing.assert_array_equal(to.cpu().numpy(), table)
            to.zero_()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_uploads_ask_for_pinned_memory_once() -> None:
    device = torch.device("cuda", 0)
    uploads, table = Uploads(device), np.arange(1_000)
    to = torch.zeros(1_000, dtype=torch.int64, device=device)
    before = torch.cuda.host_memory_stats()["num_host_alloc"]
    for _ in range(200):
        uploads.send(table, to)
        torch.cuda.synchronize()
    assert torch.cuda.host_memory_stats()["num_host_alloc"] == before
    assert to.tolist() == table.tolist()
