"""Where the memory of a training goes."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from sonde.core.frames import is_missing
from sonde.probes.allocators import Allocators
from sonde.probes.memory import Memory, num_bytes

from .armed import iteration


def _net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Linear(7, 3))


def _train(net: nn.Module, optimizer: torch.optim.Optimizer, memory: Memory, device: str = "cpu") -> None:
    net(torch.ones(4, 5, device=device)).sum().backward()
    optimizer.step()
    memory.stepped()
    optimizer.zero_grad()


def _own(net: nn.Module) -> int:
    return sum(p.numel() * p.element_size() for p in net.parameters())


def test_parameters_gradients_buffers_and_state_are_told_apart() -> None:
    net = _net()
    optimizer = torch.optim.Adam(net.parameters())
    memory = Memory({"": net}, {"": optimizer})
    found = iteration(memory, lambda: _train(net, optimizer, memory))
    size = _own(net)
    assert found == {
        "memory/parameters": size,
        "memory/gradients": size,
        "memory/buffers": 7 * 4 * 2 + 8,
        "memory/optimizer": 2 * size + 4 * len(list(net.parameters())),
    }


def test_gradients_that_are_gone_at_the_end_count_as_they_were_at_the_step() -> None:
    net = _net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    memory = Memory({"": net}, {"": optimizer})
    assert iteration(memory, lambda: None)["memory/gradients"] == 0
    assert iteration(memory, lambda: _train(net, optimizer, memory))["memory/gradients"] == _own(net)
    assert iteration(memory, lambda: None)["memory/gradients"] == 0


def test_gradients_that_stay_need_no_mark() -> None:
    net = nn.Linear(5, 2)
    net(torch.ones(1, 5)).sum().backward()
    assert iteration(Memory({"": net}, {}), lambda: None)["memory/gradients"] == _own(net)


def test_marks_outside_armed_iterations_do_nothing() -> None:
    net = nn.Linear(5, 2)
    memory = Memory({"": net}, {})
    net(torch.ones(1, 5)).sum().backward()
    memory.stepped()
    assert memory.collect() == []
    net.zero_grad()
    assert iteration(memory, lambda: None)["memory/gradients"] == 0


def test_tied_weights_count_once() -> None:
    first, second, twin = (nn.Linear(6, 6, bias=False) for _ in range(3))
    second.weight = first.weight
    twin.weight = nn.Parameter(first.weight.detach().T)  # another parameter over the same memory
    net = nn.Sequential(first, second)
    optimizer = torch.optim.SGD([*net.parameters(), *twin.parameters()], lr=0.1)
    found = iteration(Memory({"a": net, "b": twin}, {"": optimizer}), lambda: None)
    assert found["memory/parameters"] == 6 * 6 * 4


def test_parameters_that_only_the_optimiser_has_count() -> None:
    alone = nn.Parameter(torch.ones(10, dtype=torch.float64))
    optimizer = torch.optim.SGD([alone], lr=0.1)
    assert iteration(Memory({"": nn.Linear(1, 1)}, {"": optimizer}), lambda: None)["memory/parameters"] == 80 + 8


def test_state_inside_lists_counts() -> None:
    net = nn.Linear(4, 1, bias=False)
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (net(torch.ones(1, 4)) ** 2 + net.weight.sum() ** 2).sum()
        loss.backward()
        return loss

    memory = Memory({"": net}, {"": optimizer})
    assert iteration(memory, lambda: None)["memory/optimizer"] == 0
    found = iteration(memory, lambda: optimizer.step(closure))  # type: ignore[no-untyped-call]
    assert found["memory/optimizer"] >= 4 * 4 * 2


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=8),
    st.integers(0, 30),
    st.sampled_from([torch.float16, torch.float64]),
)
def test_pieces_of_one_memory_count_their_own_bytes_and_never_more_than_it_has(
    sizes: list[int], rest: int, dtype: torch.dtype
) -> None:
    memory = torch.zeros(sum(sizes) + rest, dtype=dtype)
    pieces = list(torch.split(memory, [*sizes, rest]))[: len(sizes)]
    assert num_bytes(pieces, {}).total() == sum(sizes) * memory.element_size()
    assert num_bytes([*pieces, memory, *pieces, memory.expand(3, -1)], {}).total() == memory.nbytes


def test_sparse_tensors_count_with_their_indices_and_meta_tensors_not_at_all() -> None:
    sparse = torch.eye(5).to_sparse()
    assert num_bytes([sparse], {}).total() == 5 * 4 + 2 * 5 * 8
    assert num_bytes([torch.empty(1000, device="meta")], {}).total() == 0


@pytest.fixture
def _four_ranks() -> Iterator[None]:
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=1, world_size=4)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("_four_ranks")
def test_of_a_sharded_parameter_the_local_part_counts() -> None:
    mesh = init_device_mesh("cpu", (4,))
    net = nn.Linear(8, 8, bias=False)
    net.weight = nn.Parameter(DTensor.from_local(torch.ones(2, 8), mesh, [Shard(0)], run_check=False))
    assert net.weight.shape == (8, 8)
    net.weight.grad = DTensor.from_local(torch.ones(2, 8), mesh, [Shard(0)], run_check=False)
    found = iteration(Memory({"": net}, {}), lambda: None)
    assert found["memory/parameters"] == found["memory/gradients"] == 2 * 8 * 4


def test_on_a_cpu_there_is_no_allocator_to_ask() -> None:
    memory = Memory({"": nn.Linear(1, 1)}, {})
    found = iteration(memory, lambda: None)
    assert set(found) == {"memory/parameters", "memory/gradients", "memory/buffers", "memory/optimizer"}
    assert memory.not_measured() == {}


def test_an_allocator_is_asked_for_gpus_only() -> None:
    allocators = Allocators(lambda: [torch.device("cpu")])
    assert iteration(allocators, lambda: None) == {}
    assert allocators.collect() == []
    assert allocators.not_measured() == {}


def test_after_closing_nothing_is_held() -> None:
    memory = Memory({"": nn.Linear(1, 1)}, {})
    memory.arm([0])
    memory.close()
    assert memory.num_slots == 0
    assert memory.collect() == []


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_on_a_gpu_the_allocator_is_asked_without_waiting_and_its_peak_is_left_alone() -> None:
    net = _net().cuda()
    optimizer = torch.optim.Adam(net.parameters())
    memory = Memory({"": net}, {"": optimizer})
    _train(net, optimizer, memory, "cuda")
    held = torch.empty(2**24, device="cuda")
    del held
    torch.cuda.set_sync_debug_mode("error")
    found = iteration(memory, lambda: _train(net, optimizer, memory, "cuda"))
    found |= iteration(Allocators(lambda: [torch.device("cuda:0")]), lambda: None)
    torch.cuda.set_sync_debug_mode("default")
    assert found["memory/allocated"] == torch.cuda.memory_allocated()
    assert found["memory/reserved"] == torch.cuda.memory_reserved()
    assert found["memory/peak"] == torch.cuda.max_memory_allocated() >= 2**26
    assert found["memory/total"] == torch.cuda.get_device_properties(0).total_memory
    own = sum(found[f"memory/{kind}"] for kind in ("parameters", "gradients", "buffers"))
    # The state's step counters lie on the CPU.
    state = found["memory/optimizer"] - 4 * len(list(net.parameters()))
    assert found["memory/activations"] == found["memory/peak"] - own - state
    assert memory.not_measured() == {}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_activations_are_missing_where_the_peak_was_reset() -> None:
    if torch.cuda.memory_allocated() > 2**28:
        pytest.skip("other tests have left more on the device than this model takes")
    net = nn.Linear(2**13, 2**13, device="cuda")  # larger than what cuBLAS takes for itself
    memory = Memory({"": net}, {})
    memory.arm([0])
    net(torch.ones(1, 2**13, device="cuda")).sum().backward()
    memory.stepped()
    net.zero_grad()
    torch.cuda.reset_peak_memory_stats()
    (reading,) = memory.collect()
    (row,) = reading.report(np.empty(0))
    values = dict(zip(row.columns.tags, row.values.astype(np.float32), strict=True))
    assert is_missing(values["memory/activations"])
    assert values["memory/gradients"] == _own(net)
