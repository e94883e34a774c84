"""What only a GPU can show: that nothing waits, that addresses are followed, and that large offsets are right."""

import re
from collections.abc import Iterator

import pytest
import torch

from sonde.kernels import Column, Stats, TensorStats, reference, tensor_stats
from sonde.kernels.copies import Copies

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
    pytest.mark.filterwarnings("ignore:.*Profiler clears events:UserWarning"),
]


@pytest.fixture
def _waiting_raises() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


def tensors(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [torch.randn(n, device="cuda").to(dtype) for n in (100_000, 768, 0, 5, 300_000)]


def measured(stats: Stats) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What a call for everything gives; norms apart come of the native path alone."""
    assert stats.histogram is not None
    assert stats.sketch is not None
    return stats.rows, stats.histogram, stats.sketch


def everything(stats: TensorStats, new: list[torch.Tensor], old: list[torch.Tensor]) -> list[Stats]:
    return [
        stats(new),
        stats(new, histogram=True, sketch=True),
        stats.of_difference(new, old, histogram=True, sketch=True),
        stats.of_difference(new, stats.copy(old), histogram=True, sketch=True),
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
    first, second = (measured(stats(new, histogram=True, sketch=True)) for _ in range(2))
    assert all(map(torch.equal, first, second))


def test_later_calls_leave_what_was_given_out_alone() -> None:
    stats = TensorStats([torch.empty(100, device="cuda")])
    given = [torch.full((100,), float(i), device="cuda") for i in range(20)]
    found = [stats([tensor], histogram=True, sketch=True) for tensor in given]
    assert [int(each.rows[0, Column.MEAN]) for each in found] == list(range(20))
    for each, tensor in zip(found, given, strict=True):
        assert each.histogram is not None
        assert torch.equal(each.histogram[0], reference.histogram(tensor))


def test_every_row_is_of_its_own_call() -> None:
    new = [torch.empty(n, device="cuda") for n in (900_000, 70_000, 5, 0, 131_072) * 12]
    stats = TensorStats(new)
    found = []
    for i in range(300):  # chunks of an earlier call that were folded would show
        torch._foreach_zero_(new)
        torch._foreach_add_(new, float(i))
        found.append(stats(new).rows[:, [Column.COUNT, Column.MIN, Column.MEAN, Column.MAX]])
    rows = torch.stack(found).cpu()
    numels = torch.tensor([tensor.numel() for tensor in new], dtype=torch.float64)
    assert torch.equal(rows[..., 0], numels.expand(300, -1))
    values = torch.arange(300, dtype=torch.float64)[:, None, None].expand(-1, len(new), 3)[:, numels > 0]
    assert torch.equal(rows[..., 1:][:, numels > 0], values)


def test_a_smaller_tensor_at_the_same_address_is_refused() -> None:
    x = torch.randn(1000, device="cuda")
    stats = TensorStats([x])
    for _ in range(3):
        stats([x])
    with pytest.raises(ValueError, match="prepare"):
        stats([x[:999]])
    assert stats([x[:1].expand(1000)]).rows[0, Column.M2].item() == 0.0


def test_a_tensor_whose_memory_was_freed_is_refused() -> None:
    x = torch.randn(1000, device="cuda")
    stats = TensorStats([x])
    for _ in range(3):
        stats([x])
    x.untyped_storage().resize_(0)
    for each in (stats, stats, TensorStats([x])):
        with pytest.raises(ValueError, match="freed"):
            each([x])


def test_calls_inside_and_outside_of_inference_mode_may_take_turns() -> None:
    new = [torch.randn(100, device="cuda"), torch.randn(100, dtype=torch.float64, device="cuda")]
    stats = TensorStats(new)
    for i in range(40):
        with torch.inference_mode(i % 3 == 0):
            found = stats([tensor + i for tensor in new], histogram=True)
        assert torch.allclose(found.rows[:, Column.MAX], torch.stack([tensor.max() + i for tensor in new]).double())


def test_calls_on_another_stream_are_right() -> None:
    new = tensors()
    stats = TensorStats(new)
    want = measured(stats(new, histogram=True, sketch=True))
    torch.cuda.synchronize()
    for _ in range(3):
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        with torch.cuda.stream(side):
            found = measured(stats(new, histogram=True, sketch=True))
        torch.cuda.synchronize()
        again = measured(stats(new, histogram=True, sketch=True))
        assert all(map(torch.equal, want, found))
        assert all(map(torch.equal, want, again))


def test_copies_are_one_piece_of_memory_that_lasts_until_it_is_forgotten() -> None:
    new = tensors()
    stats = TensorStats(new)
    before = stats.copy(new)
    assert isinstance(before, Copies)
    want = [tensor.clone() for tensor in new]
    for tensor in new:
        tensor.mul_(2)
    for a, b in zip(before, want, strict=True):
        assert torch.equal(a, b)
    assert torch.equal(stats.of_difference(new, before).rows, stats.of_difference(new, want).rows)


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
