"""How long the phases of an iteration take."""

import copy
import pickle
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sonde.core.frames import is_missing
from sonde.probes.phases import DeviceClock, Phases

from .armed import iteration, num_told

CPU = torch.device("cpu")
gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    num = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num)


class Timed(nn.Module):
    """Takes the time of its own forwards: what is measured from outside is never less."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.spans: list[tuple[float, float]] = []

    def forward(self, x: Tensor, *, fails: bool = False) -> Tensor:
        start = time.perf_counter()
        if fails:
            raise ValueError("on purpose")
        y: Tensor = self.inner(x)
        self.spans.append((start, time.perf_counter()))
        return y


class Loop:
    """A training loop that takes the time of everything, and marks what a monitor's hooks would."""

    def __init__(self, *, wrap: Callable[[nn.Module], nn.Module] = lambda net: net, device: torch.device = CPU) -> None:
        self.net = Timed().to(device)
        self.wrapped = wrap(self.net)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.phases = Phases({"": self.wrapped}, device)
        self.x = torch.ones(4, 8, device=device)
        self.outside: list[tuple[float, float]] = []
        self.steps: list[tuple[float, float]] = []
        self.before_step = 0.0

    def forward(self) -> Any:
        start = time.perf_counter()
        y = self.wrapped(self.x)
        self.outside.append((start, time.perf_counter()))
        return y

    def step(self) -> None:
        self.before_step = time.perf_counter()
        self.phases.mark("optimizer")
        start = time.perf_counter()
        self.optimizer.step()
        self.steps.append((start, time.perf_counter()))
        self.phases.mark("optimizer-done")
        self.optimizer.zero_grad()

    def train(self, num_micro: int = 1) -> None:
        for _ in range(num_micro):
            self.forward().sum().backward()
        self.step()


def _length(spans: list[tuple[float, float]]) -> float:
    return sum(end - start for start, end in spans)


def _missing(found: dict[str, float]) -> set[str]:
    return {tag for tag, value in found.items() if is_missing(np.array(value, np.float32))}


@pytest.mark.parametrize("num_micro", [1, 3])
def test_phases_are_summed_over_the_forwards_of_an_iteration(num_micro: int) -> None:
    loop = Loop()
    started = time.perf_counter()
    found = iteration(loop.phases, lambda: loop.train(num_micro))
    elapsed = time.perf_counter() - started
    assert _missing(found) == set()
    assert _length(loop.net.spans) <= found["time/forward"] <= _length(loop.outside)
    assert _length(loop.steps) <= found["time/optimizer_device"]
    ends = [end for _, end in loop.outside]
    next_starts = [start for start, _ in loop.outside[1:]] + [loop.before_step]
    least = sum(start - end for start, end in zip(next_starts, ends, strict=True))
    assert found["time/backward"] >= least
    assert sum(found.values()) <= elapsed


def test_what_lies_between_backward_and_optimiser_may_be_left_out() -> None:
    loop = Loop()
    work: list[tuple[float, float]] = []

    def train() -> None:
        loop.forward().sum().backward()
        loop.phases.mark("backward-done")
        start = time.perf_counter()
        while time.perf_counter() < start + 0.01:
            pass
        work.append((start, time.perf_counter()))
        loop.step()

    started = time.perf_counter()
    found = iteration(loop.phases, train)
    assert sum(found.values()) <= time.perf_counter() - started - _length(work)
    assert _missing(found) == set()


def test_forwards_without_gradients_are_none() -> None:
    loop = Loop()

    def train() -> None:
        with torch.no_grad():
            loop.forward()
        loop.step()

    assert _missing(iteration(loop.phases, train)) == {"time/forward", "time/backward"}


def test_backward_of_an_iteration_without_a_step_is_missing() -> None:
    loop = Loop()
    found = iteration(loop.phases, lambda: loop.forward().sum().backward())
    assert _missing(found) == {"time/backward", "time/optimizer_device"}


def test_with_a_closure_the_optimiser_is_missing() -> None:
    loop = Loop()
    optimizer: Any = torch.optim.LBFGS(loop.net.parameters(), max_iter=3)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (loop.forward() ** 2).sum()
        loss.backward()
        return loss

    def train() -> None:
        loop.phases.mark("optimizer")
        optimizer.step(closure)
        loop.phases.mark("optimizer-done")

    assert _missing(iteration(loop.phases, train)) == {"time/optimizer_device"}
    assert len(loop.outside) > 1


def test_a_model_inside_another_counts_as_part_of_it() -> None:
    inner, outer = Timed(), Timed()
    outer.add_module("inner", inner)
    phases = Phases({"a": outer, "b": inner}, CPU)
    start = time.perf_counter()
    found = iteration(phases, lambda: outer(torch.ones(4, 8)))
    assert _length(inner.spans) < _length(outer.spans) <= found["time/forward"] <= time.perf_counter() - start
    assert _missing(found) == {"time/backward", "time/optimizer_device"}


def test_a_forward_that_raised_is_forgotten() -> None:
    loop = Loop()

    def train() -> None:
        with pytest.raises(ValueError, match="on purpose"):
            loop.wrapped(loop.x, fails=True)
        loop.train()

    found = iteration(loop.phases, train)
    assert _missing(found) == set()
    assert _length(loop.net.spans) <= found["time/forward"] <= _length(loop.outside)


def test_nothing_is_hooked_or_noted_outside_armed_iterations() -> None:
    loop = Loop()
    loop.train()
    assert loop.phases.collect() == []
    assert iteration(loop.phases, lambda: None) == {}
    iteration(loop.phases, loop.train)
    assert num_told(loop.net) == 0
    loop.train()
    assert loop.phases.collect() == []


def test_closing_in_the_middle_takes_the_hooks_away() -> None:
    loop = Loop()
    loop.phases.arm([0])
    loop.forward()
    loop.phases.close()
    assert num_told(loop.net) == 0
    loop.step()
    assert loop.phases.collect() == []


def test_copies_and_files_made_in_the_middle_hold_nothing_of_ours() -> None:
    loop = Loop()
    loop.phases.arm([0])
    twin, loaded = copy.deepcopy(loop.net), pickle.loads(pickle.dumps(loop.net))
    for other in (twin, loaded):
        other(loop.x)
    loop.train()
    (reading,) = loop.phases.collect()
    (row,) = reading.report(np.empty(0))
    assert not is_missing(row.values.astype(np.float32)).any()
    for other in (twin, loaded):
        other(loop.x)


def test_a_model_wrapped_by_torch_compile_is_measured() -> None:
    loop = Loop(wrap=lambda net: _wrapped(net.inner))
    for _ in range(4):
        found = iteration(loop.phases, loop.train)
        assert _missing(found) == set()
        assert found["time/forward"] <= _length(loop.outside)
    assert loop.phases.not_measured() == {}


def _wrapped(net: Any) -> Any:
    return torch.compile(net, backend="eager")


def test_a_model_compiled_in_place_is_not_measured() -> None:
    net = nn.Linear(8, 8)
    net.compile(backend="eager")
    phases = Phases({"": net}, CPU)
    assert iteration(phases, lambda: net(torch.ones(1, 8))) == {}
    assert set(phases.not_measured()) == {"time/forward", "time/backward"}
    assert "compile()" in phases.not_measured()["time/forward"]


def test_a_model_that_is_never_called_itself_is_said_to_be_unseen() -> None:
    net = nn.Sequential(nn.Linear(8, 8))
    phases = Phases({"": net}, CPU)
    for _ in range(3):
        assert phases.not_measured() == {}
        iteration(phases, lambda: net[0](torch.ones(1, 8)))
    assert "no forward" in phases.not_measured()["time/forward"]
    iteration(phases, lambda: net(torch.ones(1, 8)))
    assert phases.not_measured() == {}


def test_device_clock_of_a_cpu_gives_nothing() -> None:
    clock = DeviceClock(CPU)
    clock.begin()
    clock.end()
    assert clock.finished() == []


class TestOnGpu:
    pytestmark = gpu

    @pytest.fixture(autouse=True)
    def _waiting_raises(self) -> Iterator[None]:
        self.loop = Loop(device=torch.device("cuda:0"))
        self.busy = torch.randn(4096, 4096, device="cuda")
        self.loop.train()
        self.clock = DeviceClock(torch.device("cuda:0"))
        self.clock.begin()
        self.clock.end()
        torch.cuda.synchronize()
        self.clock.finished()
        torch.cuda.set_sync_debug_mode("error")
        yield
        torch.cuda.set_sync_debug_mode("default")

    def _keep_busy(self) -> None:
        for _ in range(50):
            self.busy = self.busy @ self.busy * 1e-3  # a hundred milliseconds of work

    def _synchronize(self) -> None:
        torch.cuda.set_sync_debug_mode("default")
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")

    def test_times_are_told_by_a_later_collect_once_the_device_has_passed_them(self) -> None:
        self._keep_busy()
        assert iteration(self.loop.phases, self.loop.train) == {}
        self._synchronize()
        found = iteration(self.loop.phases, lambda: None)
        assert _missing(found) == set()
        assert all(0 < value < 60 for value in found.values()), found
        assert iteration(self.loop.phases, lambda: None) == {}

    def test_they_are_the_devices_own(self) -> None:
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]

        def train() -> None:
            loss = self.loop.forward().sum()
            begun.record()
            self._keep_busy()
            ended.record()
            loss.backward()
            self.loop.step()

        iteration(self.loop.phases, train)
        self._synchronize()
        found = iteration(self.loop.phases, lambda: None)
        assert found["time/backward"] >= begun.elapsed_time(ended) / 1e3
        assert found["time/forward"] + found["time/optimizer_device"] < found["time/backward"]

    def test_a_capture_is_left_alone_and_said(self) -> None:
        torch.cuda.set_sync_debug_mode("default")
        graph, x = torch.cuda.CUDAGraph(), self.loop.x
        self._keep_busy()
        self.clock.begin()
        self.clock.end()
        self.loop.phases.arm([0])
        self.loop.train()
        self.loop.phases.collect()
        self.loop.phases.arm([0])
        with torch.cuda.graph(graph):
            y = self.loop.wrapped(x)
            self.clock.begin()
            self.clock.end()
            assert self.clock.finished() == []
            assert self.loop.phases.collect() == []
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(y, self.loop.net.inner(x))
        assert "captured" in self.loop.phases.not_measured()["time/forward"]
        assert len(self.clock.finished()) == 1

    def test_device_clock_tells_the_time_of_finished_work_only(self) -> None:
        self.clock.begin()
        self._keep_busy()
        self.clock.end()
        assert self.clock.finished() == []
        self.clock.begin()
        self.clock.begin()  # the first is forgotten
        self.clock.end()
        self.clock.end()  # of nothing
        self._synchronize()
        long, short = self.clock.finished()
        assert long > short >= 0
        assert self.clock.finished() == []
