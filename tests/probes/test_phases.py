"""How long the phases of an iteration take."""

import copy
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

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


class Ticks:
    """A clock that stands still until it is told to go on, so that every span has a known length."""

    measures_host = True

    def __init__(self) -> None:
        self.now = 0.0

    def go_on(self, seconds: float) -> None:
        self.now += seconds

    def stamp(self) -> float:
        return self.now

    def passed(self, stamps: Sequence[float]) -> bool:
        return True

    def seconds(self, start: float, end: float) -> float:
        return end - start


FORWARD, LOSS, BACKWARD, CLIP, STEP, OTHER, MONITOR, DATA = (1e3 * 2**i for i in range(8))
"""Seconds: against them it is nothing how long anything really takes."""


class Slowly(torch.autograd.Function):
    """Takes its time on the way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ticks: Ticks) -> Tensor:
        ctx.ticks = ticks
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        ctx.ticks.go_on(BACKWARD)
        return gradients[0], None


class Timed(nn.Module):
    def __init__(self, ticks: Ticks | None = None) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.ticks = ticks

    def forward(self, x: Tensor, *, fails: bool = False) -> Any:
        if self.ticks is None:
            return self.inner(x)
        self.ticks.go_on(FORWARD)
        if fails:
            raise ValueError("on purpose")
        return Slowly.apply(self.inner(x), self.ticks)  # type: ignore[no-untyped-call]


class Steps(torch.optim.SGD):
    ticks: Ticks | None = None

    def step(self, closure: Any = None) -> Any:
        if self.ticks is not None:
            self.ticks.go_on(STEP)
        return super().step(closure)


MADE: list[Phases] = []


def made(phases: Phases) -> Phases:
    """Closed when the test is over: what listens to `backward` would listen in other tests."""
    MADE.append(phases)
    return phases


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while MADE:
        MADE.pop().close()


class Loop:
    """A training loop that marks what a monitor's hooks would; on a CPU by a clock of its own."""

    def __init__(self, *, wrap: Callable[[nn.Module], nn.Module] = lambda net: net, device: torch.device = CPU) -> None:
        self.ticks = Ticks() if device == CPU else None
        self.net = Timed(self.ticks).to(device)
        self.wrapped = wrap(self.net)
        self.optimizer = Steps(self.net.parameters(), lr=0.1)
        self.optimizer.ticks = self.ticks
        self.phases = made(Phases({"": self.wrapped}, device, times=self.ticks))
        self.x = torch.ones(4, 8, device=device)

    def take(self, seconds: float) -> None:
        if self.ticks is not None:
            self.ticks.go_on(seconds)

    def loss(self) -> Any:
        y = self.wrapped(self.x)
        self.take(LOSS)
        return y.sum()

    def step(self) -> None:
        self.phases.mark("optimizer")
        self.optimizer.step()
        self.phases.mark("optimizer-done")
        self.optimizer.zero_grad()

    def train(self, num_micro: int = 1) -> None:
        for _ in range(num_micro):
            self.loss().backward()
        self.step()


@pytest.fixture
def loop() -> Loop:
    return Loop()


def _missing(found: dict[str, float]) -> set[str]:
    return {tag for tag, value in found.items() if is_missing(np.array(value, np.float32))}


def _present(found: dict[str, float]) -> dict[str, Any]:
    """Without what did not occur, and what took no time to speak of."""
    return {
        tag: pytest.approx(value, rel=1e-3)
        for tag, value in found.items()
        if tag not in _missing(found) and (abs(value) > 1 or tag not in ("time/monitor", "time/other"))
    }


@pytest.mark.parametrize("num_micro", [1, 3])
def test_phases_are_summed_over_the_forwards_of_an_iteration(loop: Loop, num_micro: int) -> None:
    assert _present(iteration(loop.phases, lambda: loop.train(num_micro))) == {
        "time/forward": num_micro * FORWARD,
        "time/loss": num_micro * LOSS,
        "time/backward": num_micro * BACKWARD,
        "time/optimizer_device": STEP,
    }


def test_what_the_loop_does_besides_is_other_and_all_make_up_the_whole(loop: Loop) -> None:
    started = loop.ticks.now if loop.ticks is not None else 0.0

    def train() -> None:
        loop.take(DATA)
        loop.phases.waited(DATA)
        loop.take(OTHER)  # before the forward
        loss = loop.loss()
        loss.backward()
        loop.take(OTHER)  # between backward and the clip
        torch.nn.utils.clip_grad_norm_(_Clipped(loop), 1.0)
        loop.take(OTHER)
        loop.phases.mark("monitor")
        loop.take(MONITOR)
        loop.phases.mark("monitor-done")
        loop.step()
        loop.take(OTHER)  # behind the step

    found = iteration(loop.phases, train)
    assert _present(found) == {
        "time/forward": FORWARD,
        "time/loss": LOSS,
        "time/backward": BACKWARD,
        "time/clip": CLIP,
        "time/optimizer_device": STEP,
        "time/monitor": MONITOR,
        "time/other": 4 * OTHER,
    }
    assert loop.ticks is not None
    assert np.nansum(list(found.values())) + DATA == pytest.approx(loop.ticks.now - started)


class _Clipped:
    """The parameters of a loop, which take their time when torch reads their gradients for the norm."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def __iter__(self) -> Iterator[Any]:
        parameters = list(self._loop.net.parameters())
        gradient: Any = parameters[0].grad
        parameters[0].grad = gradient.as_subclass(_Slow)
        _Slow.ticks = self._loop.ticks
        return iter(parameters)


class _Slow(Tensor):
    ticks: Ticks | None = None

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch._foreach_norm, torch.linalg.vector_norm) and _Slow.ticks is not None:
            _Slow.ticks.go_on(CLIP)
            _Slow.ticks = None
        return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]


class _Talks(nn.Module):
    """Communicates in its forward."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Any:
        dist.all_reduce(torch.ones(1))
        return self.net(x)


def test_communication_of_the_script_is_told_apart_and_that_within_a_phase_is_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    all_reduce = dist.all_reduce
    talking: list[Loop] = []

    def slowly(tensor: Tensor) -> Any:
        talking[0].take(OTHER)
        return all_reduce(tensor)

    monkeypatch.setattr(dist, "all_reduce", slowly)
    loop = Loop(wrap=_Talks)
    talking.append(loop)

    def train() -> None:
        loss = loop.loss()
        dist.all_reduce(torch.ones(1))
        loss.backward()
        dist.all_reduce(torch.ones(1))
        loop.phases.mark("monitor")
        dist.all_reduce(torch.ones(1))
        loop.phases.mark("monitor-done")
        loop.step()

    try:
        found = _present(iteration(loop.phases, train))
    finally:
        loop.phases.close()
        dist.destroy_process_group()
    assert found == {
        "time/forward": OTHER + FORWARD,
        "time/loss": LOSS,
        "time/backward": BACKWARD,
        "time/communication": 2 * OTHER,
        "time/optimizer_device": STEP,
        "time/monitor": OTHER,
    }


def test_what_is_not_known_to_be_a_phase_is_other(loop: Loop) -> None:
    """A forward that no `backward` follows has no loss behind it; only the last of two has."""

    def train() -> None:
        loop.loss()
        loop.loss().backward()
        loop.loss()
        loop.step()

    assert _present(iteration(loop.phases, train)) == {
        "time/forward": 3 * FORWARD,
        "time/loss": LOSS,
        "time/backward": BACKWARD,
        "time/optimizer_device": STEP,
        "time/other": 2 * LOSS,
    }


def test_gradients_that_are_handed_over_are_a_backward_and_those_of_a_penalty_part_of_the_loss(loop: Loop) -> None:
    parameters = list(loop.net.parameters())

    def train() -> None:
        loop.x.requires_grad_()
        loss = loop.loss()
        (gradient,) = torch.autograd.grad(loss, loop.x, create_graph=True)
        torch.autograd.grad(loss + gradient.square().sum(), parameters)
        loop.step()

    found = _present(iteration(loop.phases, train))
    assert found["time/loss"] == LOSS + BACKWARD
    assert found["time/backward"] == BACKWARD


def test_forwards_without_gradients_are_none(loop: Loop) -> None:
    def train() -> None:
        with torch.no_grad():
            loop.loss()
        loop.step()

    found = _present(iteration(loop.phases, train))
    assert found == {"time/optimizer_device": STEP, "time/other": FORWARD + LOSS}


def test_an_iteration_without_a_step_has_no_optimiser(loop: Loop) -> None:
    found = iteration(loop.phases, lambda: loop.loss().backward())
    assert _missing(found) == {"time/clip", "time/optimizer_device", "time/communication"}


def test_what_a_closure_evaluates_is_no_part_of_the_optimiser(loop: Loop) -> None:
    def closure() -> Any:
        loss = loop.loss()
        loss.backward()
        return loss

    def train() -> None:
        loop.phases.mark("optimizer")
        loop.optimizer.step(closure)
        loop.take(OTHER)
        loop.phases.mark("optimizer-done")

    assert _present(iteration(loop.phases, train)) == {
        "time/forward": FORWARD,
        "time/loss": LOSS,
        "time/backward": BACKWARD,
        "time/optimizer_device": STEP + OTHER,
    }


def test_a_forward_that_is_recomputed_is_part_of_the_backward(loop: Loop) -> None:
    def train() -> None:
        y: Any = checkpoint(loop.wrapped, loop.x, use_reentrant=False)
        y.sum().backward()

    found = _present(iteration(loop.phases, train))
    assert (found["time/forward"], found["time/backward"]) == (FORWARD, FORWARD + BACKWARD)


def test_a_model_inside_another_counts_as_part_of_it() -> None:
    ticks = Ticks()
    inner = Timed(ticks)
    outer = nn.Sequential(inner, Timed(ticks))
    phases = made(Phases({"a": outer, "b": inner}, CPU, times=ticks))
    found = iteration(phases, lambda: outer(torch.ones(4, 8)))
    assert _present(found) == {"time/forward": 2 * FORWARD}
    phases.close()


def test_a_forward_that_raised_is_forgotten(loop: Loop) -> None:
    def train() -> None:
        with pytest.raises(ValueError, match="on purpose"):
            loop.wrapped(loop.x, fails=True)
        loop.train()

    found = _present(iteration(loop.phases, train))
    assert (found["time/forward"], found["time/other"]) == (FORWARD, FORWARD)


def test_what_other_threads_differentiate_is_not_counted(loop: Loop) -> None:
    def train() -> None:
        x = torch.ones(2, requires_grad=True)
        thread = threading.Thread(target=lambda: Slowly.apply(x, loop.ticks).sum().backward())  # type: ignore[no-untyped-call]
        loss = loop.loss()
        thread.start()
        thread.join()
        loss.backward()

    found = _present(iteration(loop.phases, train))
    assert (found["time/loss"], found["time/backward"]) == (LOSS + BACKWARD, BACKWARD)


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
    loop.loss()
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
    assert {tag for tag, value in zip(row.columns.tags, row.values, strict=True) if np.isnan(value)} == {
        "time/clip",
        "time/communication",
    }
    for other in (twin, loaded):
        other(loop.x)


def test_a_model_wrapped_by_torch_compile_is_measured() -> None:
    loop = Loop(wrap=lambda net: _wrapped(net.inner))
    for _ in range(4):
        found = iteration(loop.phases, loop.train)
        assert _missing(found) == {"time/clip", "time/communication"}
    assert loop.phases.not_measured() == {}


def _wrapped(net: Any) -> Any:
    return torch.compile(net, backend="eager")


def test_a_model_compiled_in_place_is_not_measured() -> None:
    net = nn.Linear(8, 8)
    net.compile(backend="eager")
    phases = made(Phases({"": net}, CPU))
    assert iteration(phases, lambda: net(torch.ones(1, 8))) == {}
    assert set(phases.not_measured()) == {"time/forward", "time/loss"}
    assert "compile()" in phases.not_measured()["time/forward"]


def test_a_model_that_is_never_called_itself_is_said_to_be_unseen() -> None:
    net = nn.Sequential(nn.Linear(8, 8))
    phases = made(Phases({"": net}, CPU))
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
        assert _missing(found) == {"time/clip", "time/communication"}
        assert all(0 <= value < 60 for tag, value in found.items() if tag not in _missing(found)), found
        assert iteration(self.loop.phases, lambda: None) == {}

    def test_they_are_the_devices_own(self) -> None:
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]

        def train() -> None:
            loss = self.loop.loss()
            begun.record()
            self._keep_busy()
            ended.record()
            loss.backward()
            self.loop.step()

        iteration(self.loop.phases, train)
        self._synchronize()
        found = iteration(self.loop.phases, lambda: None)
        assert found["time/loss"] >= begun.elapsed_time(ended) / 1e3
        assert found["time/forward"] + found["time/backward"] + found["time/optimizer_device"] < found["time/loss"]

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
