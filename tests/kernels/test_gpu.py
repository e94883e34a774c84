"""What only a GPU can show: that nothing waits, that addresses are followed, and that large offsets are right."""

import re
from collections.abc import Iterator

import pytest
import torch

from sonde.kernels import Column, Stats, TensorStats, reference, tensor_stats

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]


@pytest.fixture
def _waiting_raises() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


def tensors(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [torch.randn(n, device="cuda").to(dtype) for n in (100_000, 768, 0, 5, 300_000)]


def everything(stats: TensorStats, new: list[torch.Tensor], old: list[torch.Tensor]) -> list[Stats]:
    return [
        stats(new),
        stats(new, histogram=True, sketch=True),
        stats.of_difference(new, old, histogram=True, sketch=True),
    ]


@pytest.mark.usefixtures("_waiting_raises")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_call_does_not_wait_for_the_device(dtype: torch.dtype) -> None:
    new, old = tensors(dtype), tensors(dtype)
    torch.cuda.set_sync_debug_mode("default")
    stats = TensorStats(new)
    everything(stats, new, old)  # compiles
    torch.cuda.set_sync_debug_mode("error")
    for _ in range(5):
        everything(stats, [2 * tensor for tensor in new], old)


def test_a_trace_of_calls_shows_neither_waiting_nor_host_allocation_nor_pageable_copies() -> None:
    new, old = tensors(), tensors()
    stats = TensorStats(new)
    everything(stats, new, old)  # compiles
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        with torch.profiler.record_function("calls"):
            for i in range(20):
                everything(stats, [tensor + i for tensor in new], old)
        torch.cuda.synchronize()
    spans = profile.events()
    (calls,) = [event.time_range for event in spans if event.name == "calls" and event.device_type.name == "CPU"]
    inside = {event.name for event in spans if calls.start <= event.time_range.start <= calls.end}
    copies = {event.name for event in spans if event.name.startswith("Memcpy")}
    assert any("cudaLaunchKernel" in name or "cuLaunchKernel" in name for name in inside)
    waits = "Synchronize|HostAlloc|MallocHost|HostRegister"
    assert not [name for name in inside if re.search(waits, name)]
    assert not [name for name in copies if "Pageable" in name]


def test_addresses_are_followed_while_the_device_lags_behind() -> None:
    stats = TensorStats([torch.empty(1000, device="cuda")])
    busy = torch.randn(4096, 4096, device="cuda")
    for _ in range(20):
        busy = busy @ busy * 1e-3  # tens of milliseconds of work queued ahead of the calls
    given = [torch.full((1000,), float(i), device="cuda") for i in range(100)]
    found = [stats([tensor]).rows[0, Column.MEAN] for tensor in given]
    assert torch.stack(found).tolist() == list(range(100))


def test_repeated_calls_give_the_same_bits() -> None:
    stats, new = TensorStats(tensors()), tensors()
    new = [tensor.clone() for tensor in new]
    first, second = (stats(new, histogram=True, sketch=True) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        assert a is not None
        assert b is not None
        assert torch.equal(a, b)


def test_tensors_of_more_than_two_billion_values_are_measured_to_their_end() -> None:
    n = 2**31 + 70_001
    if torch.cuda.mem_get_info()[0] < 3 * n:
        pytest.skip("there is too little device memory")
    x = torch.zeros(n, dtype=torch.bfloat16, device="cuda")
    # Stretches of 256 equal powers of two, few enough that every sum of a sketch is exact in float32.
    x[-3072:] = (2.0 ** torch.arange(12, device="cuda")).repeat_interleave(256).to(torch.bfloat16)
    x[0] = -3.0
    found = tensor_stats([x], histogram=True, sketch=True)
    assert found.histogram is not None
    assert found.sketch is not None
    row = found.rows[0].tolist()
    assert row[Column.COUNT] == n
    assert row[Column.ZEROS] == n - 3073
    assert (row[Column.MIN], row[Column.MAX]) == (-3.0, 2.0**11)
    total = 256.0 * (2**12 - 1) - 3
    squares = 256.0 * (4**12 - 1) / 3 + 9
    assert row[Column.MEAN] == pytest.approx(total / n, rel=1e-6)
    assert row[Column.M2] == pytest.approx(squares - total**2 / n, rel=1e-5)
    last = torch.arange(n - 3072, n, device="cuda")
    want = torch.zeros(256, dtype=torch.float64, device="cuda")
    for i, value in ((last, x[-3072:].double()), (last[:1] * 0, x[:1].double())):
        sign, place = reference.signs(i, 0)
        want.scatter_add_(0, place, sign * value)
    assert torch.equal(found.sketch[0].double(), want)
    assert n / 256 - 256 <= int(found.histogram.sum()) <= n / 256 + 256


def test_a_captured_graph_replays_the_measurement_where_the_user_wants_one() -> None:
    new = tensors()
    stats = TensorStats(new)
    stats(new)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = stats(new)
    new[0].fill_(2.0)
    graph.replay()
    assert found.rows[0, Column.MEAN].item() == 2.0


def test_random_numbers_of_the_device_are_not_drawn() -> None:
    new = tensors()
    before = torch.cuda.get_rng_state()
    everything(TensorStats(new), new, new)
    assert torch.equal(before, torch.cuda.get_rng_state())
