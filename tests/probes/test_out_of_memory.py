from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sonde.probes.out_of_memory import held_at, origin


class Greedy(torch.autograd.Function):
    """Fails in the backward pass, as an allocation there does."""

    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(_ctx: Any, *_gradients: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.50 MiB. GPU 1 has a total capacity of")


class Huge(nn.Module):
    """Asks the CPU's allocator for 128 TiB."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.empty(2**45)


def _failure(call: Any) -> BaseException:
    with pytest.raises((RuntimeError, MemoryError)) as caught:
        call()
    return caught.value


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory."),
        MemoryError(),
        RuntimeError("MPS backend out of memory (MPS allocated: 1 GB)"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
    ],
)
def test_failed_allocations_are_known_by_their_type_or_their_words(error: Exception) -> None:
    assert origin(error) is error


def test_what_came_of_a_failed_allocation_leads_back_to_it() -> None:
    failed = MemoryError("no room")
    wrapped = ValueError("no batch")
    wrapped.__cause__ = failed
    handled = KeyError("loss")
    handled.__context__ = failed
    hidden = KeyError("loss")
    hidden.__context__, hidden.__suppress_context__ = failed, True
    interrupted = KeyboardInterrupt()
    interrupted.__context__ = failed
    found = [origin(error) for error in (wrapped, handled, hidden, interrupted, ValueError("mismatch"), None)]
    assert found == [failed, failed, None, None, None, None]


def test_inside_the_models_call_the_batch_is_what_it_was_called_with_and_the_module_is_named() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.Sequential(Huge()))
    held = held_at(_failure(lambda: net(torch.zeros(5, 3))), {"": net}, {}, {"stale": [1]})
    assert (held["device"], held["phase"], held["module"]) == ("cpu", "forward", "1.0")
    assert held["batch"] == {"0": [5, 3]}
    assert held["requested"] == 2**47
    assert held["memory"]["memory/parameters"] == 4 * (3 * 4 + 4)
    assert held["memory"]["host/rss"] > 1e7


def test_in_the_backward_pass_the_batch_is_the_last_one_fetched() -> None:
    net = nn.Linear(3, 4)
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(2):
        net(torch.zeros(5, 3)).sum().backward()
        optimizer.step()
    loss: Any = Greedy.apply(net(torch.zeros(5, 3)).sum())  # type: ignore[no-untyped-call]
    held = held_at(_failure(loss.backward), {"G": net}, {"G": optimizer}, {"image": [5, 3]})
    assert (held["device"], held["phase"], held["module"]) == ("cuda:1", "backward", "")
    assert held["batch"] == {"image": [5, 3]}
    assert held["requested"] == 20.5 * 2**20
    size = 4 * (3 * 4 + 4)
    memory = held["memory"]
    assert (memory["memory/parameters"], memory["memory/gradients"]) == (size, size)
    assert memory["memory/optimizer"] == 2 * size + 2 * 4  # two moments, and the count of steps of each parameter
