"""Being told of the calls of modules, with nothing on the modules."""

import copy
import gc
import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

from sonde.probes.calls import CALLS

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*`torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
]


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.inner(x).relu()
        return y


class Calling(Plain):
    """With a `__call__` of its own, as many libraries have."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **kwargs)


def _hooked() -> nn.Module:
    net = Plain()
    net.inner.register_forward_hook(lambda *_: None)
    return net


class Broken(nn.Module):
    """Dynamo must break the graph in its middle."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        torch._dynamo.graph_break()
        z: Tensor = self.second(y)
        return z


def _net(part: nn.Module | None = None) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 3), part or nn.Sequential(nn.Linear(3, 3), nn.ReLU()))


@pytest.fixture
def seen() -> list[Any]:
    return []


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    torch.compiler.reset()
    counters.clear()
    yield
    torch.compiler.reset()


def test_told_in_order_around_the_call_and_no_more_after_leaving(seen: list[Any]) -> None:
    net = _net()
    leave = [
        CALLS.before(net, lambda m, a, k: seen.append(("before", m is net, len(a)))),
        CALLS.around(net, lambda m, a, k: seen.append("enter"), lambda m: seen.append("leave")),
        CALLS.before(net, lambda m, a, k: seen.append("second")),
        CALLS.after(net, lambda m, a, k, y: seen.append(tuple(y.shape))),
    ]
    assert net in CALLS
    net(torch.ones(2, 3))
    assert seen == [("before", True, 1), "second", "enter", "leave", (2, 3)]
    for one in leave:
        one()
        one()
    assert net not in CALLS
    net(torch.ones(2, 3))
    assert len(seen) == 5


def test_one_who_comes_while_others_are_told_is_told_of_the_same_call(seen: list[Any]) -> None:
    net = _net()
    leave: list[Callable[[], None]] = []

    def replace(module: nn.Module, args: Any, kwargs: Any) -> None:
        leave.pop()()
        leave.append(CALLS.before(net, lambda *_: seen.append("new")))
        leave.append(CALLS.around(net, lambda *_: seen.append("enter"), lambda *_: seen.append("leave")))

    leave.append(CALLS.before(net, replace))
    leave.append(CALLS.before(net, lambda *_: seen.append("old")))
    net(torch.ones(1, 3))
    assert seen == ["new", "enter", "leave"]
    for one in leave:
        one()
    assert net not in CALLS


def test_a_call_that_fails_is_left_and_has_no_end(seen: list[Any]) -> None:
    net = _net()
    leave = [
        CALLS.around(net, lambda *_: seen.append("enter"), lambda *_: seen.append("leave")),
        CALLS.after(net, lambda *_: seen.append("after")),
    ]
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        net(torch.ones(1, 4))
    assert seen == ["enter", "leave"]
    for one in leave:
        one()


def test_all_modules_are_told_of_inside_each_other(seen: list[Any]) -> None:
    net = nn.Sequential(nn.ReLU())
    leave = CALLS.around_all(
        lambda m, a, k: seen.append(type(m).__name__),
        lambda m: seen.append(f"/{type(m).__name__}"),
        lambda m, a, k, y: seen.append(len(y)),
    )
    net(torch.ones(2))
    leave()
    net(torch.ones(2))
    assert seen == ["Sequential", "ReLU", "/ReLU", 2, "/Sequential", 2]


_BACK = """
from torch import nn
from sonde.probes.calls import CALLS

before = nn.Module.__call__
code, net = before.__code__, nn.Linear(1, 1)
leave = CALLS.before(net, lambda *_: None)
assert nn.Module.__call__ is before, "the compiler looks at the function"
assert before.__code__ is not code
leave()
assert before.__code__ is code
release = CALLS.hold()
assert before.__code__ is not code
release()
release()
assert before.__code__ is code
"""


def test_torchs_own_code_is_back_when_nobody_is_told() -> None:
    # In a process where nothing is compiled that depends on it.
    subprocess.run([sys.executable, "-c", _BACK], check=True, timeout=120)


_WITHOUT_SOURCES = """
import inspect, torch
from sonde.probes.calls import CALLS
def getsource(thing):
    raise OSError("could not get source code")
inspect.getsource = getsource
net, seen = torch.nn.Linear(2, 1), []
leave = CALLS.before(net, lambda *call: seen.append(call))
y = net(torch.ones(3, 2))
leave()
assert len(seen) == 1
assert torch.equal(net(torch.ones(3, 2)), y)
"""


def test_where_torch_has_no_sources_calls_are_told_of_as_well() -> None:
    subprocess.run([sys.executable, "-c", _WITHOUT_SOURCES], check=True, timeout=120)


def test_copies_files_and_programs_of_a_module_hold_nothing_and_are_not_told_of(seen: list[Any]) -> None:
    net, x = _net(), torch.ones(2, 3)
    leave = CALLS.before(net, lambda m, *_: seen.append(m))
    others: list[Any] = [
        copy.deepcopy(net),
        pickle.loads(pickle.dumps(net)),
        torch.jit.script(net),
        torch.jit.trace(net, x, check_trace=False),  # type: ignore[no-untyped-call]
        torch.fx.symbolic_trace(net),
        torch.export.export(net, (x,)).module(),
    ]
    assert not seen
    for other in others:
        assert torch.equal(other(x), net(x))
    leave()
    assert seen == [net] * len(others)
    for other in others[:-1]:  # what was exported has hooks of torch's own
        assert not other._forward_hooks
        assert not other._forward_pre_hooks
    assert b"sonde" not in pickle.dumps(net)


def test_a_module_is_not_kept_alive_and_its_place_in_memory_is_not_taken_for_it(seen: list[Any]) -> None:
    net = _net()
    alive, leave = weakref.ref(net), CALLS.before(net, lambda *_: seen.append(1))
    del net
    gc.collect()
    assert alive() is None
    for _ in range(50):
        other = _net()
        assert other not in CALLS
        other(torch.ones(1, 3))
    leave()
    assert not seen


def test_own_errors_of_a_module_have_their_traceback(seen: list[Any]) -> None:
    class Raising(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise LookupError("mine")

    net = Raising()
    leave = CALLS.before(net, lambda *_: None)
    with pytest.raises(LookupError, match="mine") as caught:
        net(torch.ones(1))
    leave()
    assert caught.traceback[-1].name == "forward"
    assert sys.exc_info() == (None, None, None)


PARTS: dict[str, Callable[[], nn.Module]] = {
    "plain": Plain,
    "a call of its own": Calling,
    "a broken graph": Broken,
    "a hook of the user's": _hooked,
}
WAYS = ["a function", "a module", "in place", "a part"]


def _ignore(_module: nn.Module, _args: Any, _kwargs: Any) -> None: ...


def _compiled_calls(part: Callable[[], nn.Module], way: str, *, told: bool) -> tuple[int, int, int]:
    """Graphs, frames and breaks of a compiled thing that is called with and without gradients."""
    torch.compiler.reset()
    counters.clear()
    net = _net(part())
    num_graphs = 0

    def note(graph: torch.fx.GraphModule, _: Any) -> Any:
        nonlocal num_graphs
        num_graphs += 1
        return graph.forward

    full = part is not Broken
    call: Any = net
    if way == "a function":
        compiled: Any = torch.compile
        call = compiled(lambda x: net(x) * 2, backend=note, fullgraph=full)
    elif way == "a module":
        call = torch.compile(net, backend=note, fullgraph=full)
    elif way == "in place":
        net[1].compile(backend=note, fullgraph=full)
    else:
        part_of_it: Any = torch.compile(net[1], backend=note, fullgraph=full)
        net[1] = part_of_it
    release = CALLS.hold() if told else None
    for i in range(12):
        leave = [CALLS.before(module, _ignore) for module in net.modules()] if told and i % 3 else []
        call(torch.ones(2, 3)).sum().backward()
        with torch.no_grad():
            call(torch.ones(2, 3))
        for one in leave:
            one()
        if i == 1 and release is not None:
            release()
    assert num_graphs > 0
    return num_graphs, counters["frames"]["total"], sum(counters["graph_break"].values())


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("way", WAYS)
def test_compiled_code_does_not_notice_who_is_told(part: str, way: str) -> None:
    found = PARTS[part]
    assert _compiled_calls(found, way, told=True) == _compiled_calls(found, way, told=False)
