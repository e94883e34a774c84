"""Training is sacred: losses, weights, buffers and random states are bit-identical with and without Sonde."""

import contextlib
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

import sonde
from sonde.core.cadences import every
from sonde.probes.cadences import ON_CPU, Cadences

from . import loops

# Torch's compilers wake its own deprecations when they are first imported.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")

NUM_STEPS = 300

# Intervals with few common factors, so that in 300 steps nearly every set of families meets in one.
OFTEN = Cadences(
    layers=every(2),
    cosines=every(3),
    rotating=every(4),
    histograms=every(7),
    blocks=every(5),
    process=every(3),
    resources=every(3),
    batches=every(4),
    spectra=every(9),
)

Iteration = Callable[[nn.Module, Any, loops.Batch, int], Any]


class Case(NamedTuple):
    make_model: Callable[[], nn.Module]
    make_optimizer: Callable[[nn.Module], Any]
    make_iteration: Callable[[nn.Module, Any], Iteration]
    cadence: Cadences = OFTEN


class Outcome(NamedTuple):
    losses: list[Tensor]
    weights: list[Tensor]
    buffers: list[Tensor]
    state: list[Tensor]
    """The optimiser's."""
    random: tuple[Any, ...]
    """Of torch, Python and NumPy."""


# Models. All take vectors of six numbers and give three logits.


class Attending(nn.Module):
    """A transformer with dropout over the six numbers, each taken for a token."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embed = nn.Linear(1, 8)
        self.blocks = nn.Sequential(
            *(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True) for _ in range(2))
        )
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.blocks(self.embed(x.unsqueeze(-1))).mean(1))
        return logits


def _convolving() -> nn.Module:
    """Batch statistics are buffers; what `ReLU` gets it overwrites."""
    torch.manual_seed(1)
    layers: list[nn.Module] = [nn.Unflatten(1, (1, 2, 3))]
    for channels in ((1, 4), (4, 4)):
        layers += [nn.Conv2d(*channels, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(24, 3))


def _compiled(make_model: Callable[[], nn.Module], backend: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        torch.compiler.reset()
        net: Any = torch.compile(make_model(), backend=backend)
        return net  # type: ignore[no-any-return]

    return make


# Iterations of the loop.


def _always(iteration: Iteration) -> Callable[[nn.Module, Any], Iteration]:
    return lambda net, optimizer: iteration


def _plain(net: nn.Module, optimizer: Any, batch: loops.Batch, _: int) -> Any:
    optimizer.zero_grad()
    loss = loops.loss_of(net, batch)
    loss.backward()
    optimizer.step()
    return loss


def _bf16(net: nn.Module, optimizer: Any, batch: loops.Batch, _: int) -> Any:
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = loops.loss_of(net, batch)
    loss.backward()
    optimizer.step()
    return loss


def _clipped(net: nn.Module, optimizer: Any, batch: loops.Batch, step: int) -> Any:
    optimizer.zero_grad()
    loss = loops.loss_of(net, batch)
    loss.backward()
    clip_grad_norm_(net.parameters(), 0.1)
    if step % 2:
        clip_grad_value_(net.parameters(), 0.01)
    optimizer.step()
    return loss


def _accumulated(net: nn.Module, optimizer: Any, batch: loops.Batch, step: int) -> Any:
    loss = loops.loss_of(net, batch) / 4
    loss.backward()
    if step % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
    return loss


def _closure(net: nn.Module, optimizer: Any, batch: loops.Batch, _: int) -> Any:
    def evaluate() -> Any:
        optimizer.zero_grad()
        loss = loops.loss_of(net, batch)
        loss.backward()
        return loss

    return optimizer.step(evaluate)


class _Scaled:
    """fp16 with a scaler that overflows at first, and again whenever it has grown."""

    def __init__(self, net: nn.Module, optimizer: Any) -> None:
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=5)

    def __call__(self, net: nn.Module, optimizer: Any, batch: loops.Batch, _: int) -> Any:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = loops.loss_of(net, batch)
        self.scaler.scale(loss).backward()
        self.scaler.step(optimizer)
        self.scaler.update()
        return loss


class _CompiledOptimizer:
    """What makes the optimiser's step is compiled, the model is not."""

    def __init__(self, net: nn.Module, optimizer: Any) -> None:
        torch.compiler.reset()
        self.step: Any = torch.compile(optimizer.step, backend="aot_eager")

    def __call__(self, net: nn.Module, optimizer: Any, batch: loops.Batch, _: int) -> Any:
        optimizer.zero_grad()
        loss = loops.loss_of(net, batch)
        loss.backward()
        self.step()
        return loss


# Optimisers.


def _adam(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=0.01)


def _adamw_fused(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(net.parameters(), lr=0.01, fused=True)


def _sgd(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)


def _lbfgs(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.LBFGS(net.parameters(), max_iter=2, line_search_fn="strong_wolfe")


def _dropping() -> nn.Module:
    return loops.model(dropout=0.3)


CASES = {
    "fp32": Case(loops.model, _adam, _always(_plain)),
    "fp32, default cadences": Case(loops.model, _adam, _always(_plain), ON_CPU),
    "bf16 autocast": Case(loops.model, _adam, _always(_bf16)),
    "dropout": Case(_dropping, _sgd, _always(_plain), loops.ALWAYS),
    "clipping": Case(loops.model, _sgd, _always(_clipped)),
    "accumulation": Case(loops.model, _adam, _always(_accumulated)),
    "closures": Case(loops.model, _sgd, _always(_closure)),
    "lbfgs": Case(loops.model, _lbfgs, _always(_closure)),
    "fp16 with a scaler": Case(loops.model, _adam, _Scaled),
    "fp16 with a scaler, fused": Case(loops.model, _adamw_fused, _Scaled),
    "transformer": Case(Attending, _adam, _always(_plain)),
    "transformer, default cadences": Case(Attending, _adam, _always(_plain), ON_CPU),
    "transformer, bf16 autocast": Case(Attending, _adamw_fused, _always(_bf16)),
    "convolutions": Case(_convolving, _sgd, _always(_plain)),
    "convolutions, bf16 autocast": Case(_convolving, _adam, _always(_bf16)),
    "compiled": Case(_compiled(_dropping, "aot_eager"), _adam, _always(_plain)),
    "compiled, bf16 autocast": Case(_compiled(_convolving, "aot_eager"), _adam, _always(_bf16)),
    "compiled by inductor": Case(_compiled(_dropping, "inductor"), _adam, _always(_plain)),
    "compiled optimiser": Case(loops.model, _adam, _CompiledOptimizer),
}


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    yield
    torch.compiler.reset()


def _train(case: Case, run: Path | None, num_steps: int = NUM_STEPS) -> Outcome:
    net = case.make_model()
    optimizer = case.make_optimizer(net)
    iterate = case.make_iteration(net, optimizer)
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002 - the global one is what must not be touched
    losses = []
    with contextlib.ExitStack() as stack:
        watch = None if run is None else stack.enter_context(_watching(net, optimizer, run, case.cadence))
        for i, batch in enumerate(loops.batches(num_steps)):
            loss = iterate(net, optimizer, batch, i)
            losses.append(loss.detach().clone())
            if watch is not None:
                watch.step(loss)
    return Outcome(
        losses,
        [p.detach().clone() for p in net.parameters()],
        [b.detach().clone() for b in net.buffers()],
        [v.clone() for state in optimizer.state.values() for v in state.values() if isinstance(v, Tensor)],
        (torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state())),  # noqa: NPY002
    )


def _watching(net: nn.Module, optimizer: Any, run: Path, cadence: Cadences) -> Any:
    return loops.watching(net, optimizer, run, cadence=cadence, console="quiet")


def _differences(a: Outcome, b: Outcome) -> list[str]:
    """What is not the same to the bit; NaN is the same as NaN."""
    found = [] if a.random == b.random else ["random"]
    for what in ("losses", "weights", "buffers", "state"):
        left, right = getattr(a, what), getattr(b, what)
        same = len(left) == len(right) and all(
            torch.equal(x.nan_to_num(7.0), y.nan_to_num(7.0)) for x, y in zip(left, right, strict=True)
        )
        found += [] if same else [what]
    return found


@pytest.mark.parametrize("name", CASES)
def test_training_is_bit_identical_with_and_without_watching(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "inductor" in name:
        if not any(map(shutil.which, (os.environ.get("CXX", "g++"), "clang++"))):
            pytest.skip("inductor needs a C++ compiler, and there is none")
        # In this process: a pool of others would be left behind.
        monkeypatch.setattr("torch._inductor.config.compile_threads", 1)
    case = CASES[name]
    unwatched = _train(case, None)
    assert not _differences(unwatched, _train(case, None)), "two unwatched runs must agree, or this test says nothing"
    assert not _differences(unwatched, _train(case, tmp_path / "run"))
    assert len(unwatched.losses) == NUM_STEPS
    assert all(torch.isfinite(weight).all() for weight in unwatched.weights)
    assert unwatched.losses[-1] != unwatched.losses[0]
    run = sonde.load(tmp_path / "run")
    assert run.series("loss").step[-1] > 50, "it was watched to the end"


def test_a_difference_would_be_found() -> None:
    case = CASES["dropout"]
    first = _train(case, None, 3)
    other = _train(case, None, 3)
    assert not _differences(first, other)
    other.losses[1].add_(1e-7)
    other.weights[0].view(-1)[0] = torch.nan
    other.state[-1].mul_(1.0000001)
    assert _differences(first, other) == ["losses", "weights", "state"]
    torch.rand(1)
    assert (
        _differences(first, other._replace(random=(torch.get_rng_state().tolist(), *other.random[1:])))[0] == "random"
    )
