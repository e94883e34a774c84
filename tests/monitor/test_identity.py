"""Training is sacred: losses, weights and the random state are bit-identical with and without Sonde."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from . import loops

NUM_STEPS = 64


class Outcome(NamedTuple):
    losses: list[Tensor]
    weights: list[Tensor]
    random: Tensor


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
    """fp16 with a scaler that overflows at first."""

    def __init__(self) -> None:
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=5)

    def __call__(self, net: nn.Module, optimizer: Any, batch: loops.Batch, _: int) -> Any:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = loops.loss_of(net, batch)
        self.scaler.scale(loss).backward()
        self.scaler.step(optimizer)
        self.scaler.update()
        return loss


def _adam(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=0.01)


def _adamw_fused(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(net.parameters(), lr=0.01, fused=True)


def _sgd(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)


def _lbfgs(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.LBFGS(net.parameters(), max_iter=3, line_search_fn="strong_wolfe")


def _compiled() -> nn.Module:
    torch.compiler.reset()
    net: Any = torch.compile(loops.model(), backend="aot_eager")
    return net  # type: ignore[no-any-return]


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[nn.Module], Any], Callable[[], Callable[..., Tensor]]]] = {
    "fp32": (loops.model, _adam, lambda: _plain),
    "bf16 autocast": (loops.model, _adam, lambda: _bf16),
    "dropout": (lambda: loops.model(dropout=0.3), _sgd, lambda: _plain),
    "clipping": (loops.model, _sgd, lambda: _clipped),
    "accumulation": (loops.model, _adam, lambda: _accumulated),
    "closures": (loops.model, _sgd, lambda: _closure),
    "lbfgs": (loops.model, _lbfgs, lambda: _closure),
    "fp16 with a scaler": (loops.model, _adam, _Scaled),
    "fp16 with a scaler, fused": (loops.model, _adamw_fused, _Scaled),
    "compiled": (_compiled, _adam, lambda: _plain),
}


def _train(case: str, run: Path | None) -> Outcome:
    make_model, make_optimizer, make_iteration = CASES[case]
    net = make_model()
    optimizer, iterate = make_optimizer(net), make_iteration()
    torch.manual_seed(3)
    losses = []
    with contextlib.ExitStack() as stack:
        watch = None if run is None else stack.enter_context(loops.watching(net, optimizer, run))
        for i, batch in enumerate(loops.batches(NUM_STEPS)):
            loss = iterate(net, optimizer, batch, i)
            losses.append(loss.detach().clone())
            if watch is not None:
                watch.step(loss)
        random = torch.get_rng_state()
    return Outcome(losses, [p.detach().clone() for p in net.parameters()], random)


def _same(a: Outcome, b: Outcome) -> bool:
    tensors = zip([*a.losses, *a.weights, a.random], [*b.losses, *b.weights, b.random], strict=True)
    return all(torch.equal(left, right) for left, right in tensors)


@pytest.mark.parametrize("case", CASES)
def test_training_is_bit_identical_with_and_without_watching(case: str, tmp_path: Path) -> None:
    unwatched = _train(case, None)
    assert _same(unwatched, _train(case, None)), "two unwatched runs must agree, or this test says nothing"
    assert _same(unwatched, _train(case, tmp_path / "run"))
    assert len(unwatched.losses) == NUM_STEPS
    assert torch.isfinite(unwatched.weights[0]).all()
