"""Hooks that nobody notices."""

import gc
import io
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sonde.probes.activations import Activations
from sonde.probes.gains import Gains
from sonde.probes.hooks import Hook, Hooks, first_tensor, is_compiled, lineages, readable

from .armed import num_told

# What dynamo itself warns about while it traces.
_dynamo = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")


@pytest.fixture
def dynamo() -> Iterator[Any]:
    import torch._dynamo

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield torch._dynamo.utils.counters
    torch._dynamo.reset()


def _loud(*_: Any) -> Tensor:
    return torch.full((2, 2), 7.0)


def test_what_a_function_returns_replaces_nothing() -> None:
    net, x = nn.Linear(2, 2), torch.ones(2, 2, requires_grad=True)
    wanted = net(x)
    hooks = Hooks()
    hooks.before(net, _loud)  # type: ignore[arg-type]
    hooks.after(net, _loud)  # type: ignore[arg-type]
    y = x * 1
    hooks.on_gradient(y, _loud)  # type: ignore[arg-type]
    out = net(y)
    out.sum().backward()
    assert torch.equal(out, wanted)
    assert x.grad is not None
    assert torch.equal(x.grad, torch.autograd.grad(net(y).sum(), y)[0])


def test_hooked_tensor_is_saved_without_a_warning() -> None:
    x = torch.ones(2, requires_grad=True)
    x.register_hook(Hook(_loud))  # type: ignore[no-untyped-call]
    torch.save(x, io.BytesIO())


def test_dropped_hook_lets_go_of_its_function() -> None:
    class Ours:
        def __call__(self, *_: Any) -> None: ...

    ours = Ours()
    hook, alive = Hook(ours), weakref.ref(ours)
    hook.drop()
    del ours
    gc.collect()
    assert alive() is None
    hook(1, 2, more=3)


def test_failure_comes_out_where_hooks_are_taken_away() -> None:
    net, x = nn.Linear(2, 2), torch.ones(1, 2, requires_grad=True)
    hooks, called = Hooks(), []

    def fail(*_: Any) -> None:
        called.append(1)
        raise LookupError("ours")

    hooks.before(net, fail)
    hooks.after(net, fail)
    hooks.on_gradient(x, fail)
    net(x).sum().backward()
    assert called == [1]
    with pytest.raises(LookupError, match="ours"):
        hooks.release()
    hooks.release()
    assert num_told(net) == 0
    net(x).sum().backward()
    assert called == [1]


def _in_compiled_region(model: nn.Module, module: nn.Module) -> bool:
    return any(map(is_compiled, lineages([model])[id(module)]))


def test_compiled_region_is_all_that_lies_inside() -> None:
    inside = nn.Linear(1, 1)
    net = nn.Sequential(nn.Linear(1, 1), nn.Sequential(inside, nn.ReLU()))
    assert not any(_in_compiled_region(net, module) for module in net.modules())
    net[1].compile(backend="eager")
    assert [_in_compiled_region(net, m) for m in (net, net[0], net[1], inside)] == [False, False, True, True]
    whole: Any = torch.compile(nn.Sequential(net[0]), backend="eager")
    assert _in_compiled_region(whole, net[0])


def test_lineage_of_a_module_in_two_places_has_both() -> None:
    shared = nn.Linear(1, 1)
    first, second = nn.Sequential(shared), nn.Sequential(nn.Sequential(shared), shared)
    net = nn.ModuleList([first, second])
    assert {id(m) for m in lineages([net])[id(shared)]} == {id(m) for m in (shared, first, second, second[0], net)}
    second.compile(backend="eager")
    assert _in_compiled_region(net, shared)
    assert not _in_compiled_region(net, first)


def test_first_tensor_of_nothing_is_none() -> None:
    assert first_tensor(None) is None
    assert first_tensor(([], {"a": 1, "b": torch.ones(1, dtype=torch.int64)}, "text")) is None


def test_tensors_without_plain_values_are_not_readable() -> None:
    assert readable(torch.ones(2))
    assert readable(nn.Parameter(torch.ones(2)))
    assert not readable(torch.ones(2, device="meta"))
    assert not readable(torch.ones(2).to_sparse())
    assert not readable(torch.ones(0))
    assert not readable(torch.ones(2, dtype=torch.complex64))
    seen: list[bool] = []

    def square(x: Tensor) -> Tensor:
        seen.append(readable(x))
        return x.square()

    torch.func.vmap(square)(torch.ones(3, 2))
    assert seen == [False]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(nn.Sequential(nn.Linear(3, 3), nn.ReLU()) for _ in range(2)))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.blocks(x)
        return y


def _round(probes: list[Activations | Gains], step: Any) -> None:
    for probe in probes:
        probe.arm(range(probe.num_slots))
    step()
    for probe in probes:
        probe.collect()


@_dynamo
@pytest.mark.parametrize("armed_first", [True, False])
def test_compiled_function_is_not_broken_and_not_compiled_again(dynamo: Any, armed_first: bool) -> None:
    """Of a function the probes cannot know that it is compiled: it must not matter whether they listen."""
    net = Net()
    probes: list[Activations | Gains] = [Activations({"": net}), Gains({"": net})]
    compiled = torch.compile(lambda x: net(x).sum(), backend="eager", fullgraph=True)
    x = torch.randn(2, 3, requires_grad=True)
    if not armed_first:
        compiled(x).backward()
    for _ in range(3):
        _round(probes, lambda: compiled(x).backward())
        compiled(x).backward()
    assert dynamo["stats"]["unique_graphs"] == 1
    assert not dynamo["graph_break"]
    assert all(probe.not_measured() for probe in probes)


@_dynamo
def test_compiled_model_is_left_alone(dynamo: Any) -> None:
    net = Net()
    model: Any = torch.compile(net, backend="eager")
    probes: list[Activations | Gains] = [Activations({"": model}), Gains({"": model})]
    for _ in range(3):
        _round(probes, lambda: model(torch.randn(2, 3)).sum().backward())
    assert dynamo["stats"]["unique_graphs"] == 1
    assert not dynamo["graph_break"]
    assert set(probes[1].not_measured()) == {"gain/block@blocks.0", "gain/block@blocks.1"}


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace.* is deprecated:DeprecationWarning")
def test_traced_program_has_nothing_of_ours() -> None:
    net, x = nn.Sequential(nn.Linear(3, 3), nn.ReLU()), torch.randn(2, 3)
    probe = Activations({"": net})
    plain = torch.jit.trace(net, x)  # type: ignore[no-untyped-call]
    probe.arm(range(probe.num_slots))
    traced = torch.jit.trace(net, x)  # type: ignore[no-untyped-call]
    assert probe.collect() == []
    assert str(traced.inlined_graph).count("aten::") == str(plain.inlined_graph).count("aten::")
