"""What a training of the tests is made of.

All take vectors of six numbers and classes 0, 1 and 2 (see `loops.batches`).
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from tests.monitor import loops
from torch import Tensor, nn
from torch.nn import functional

Batch = loops.Batch
Compile = Callable[..., Any]


@dataclasses.dataclass(kw_only=True)
class Setup:
    """A training that is about to begin."""

    watched: Any
    optimizers: Any
    iterate: Callable[[Batch, int], Any]
    """One iteration: its loss."""
    evaluate: Callable[[Batch], Any]
    """Between two iterations: its loss, or those of all examples."""
    also: Callable[[], list[Tensor]] = list
    """What else must be the same in the end."""


Make = Callable[[Compile], Setup]

SETUPS: dict[str, Make] = {}


def register(name: str) -> Callable[[Make], Make]:
    def add(make: Make) -> Make:
        assert name not in SETUPS
        SETUPS[name] = make
        return make

    return add


def _logits(output: Any) -> Tensor:
    if isinstance(output, Mapping):
        output = output["logits"]
    elif dataclasses.is_dataclass(output):
        output = getattr(output, "logits")  # noqa: B009  # of whatever class
    found: Tensor = output[0] if isinstance(output, tuple) else output
    found = found if found.dim() == 2 else found.mean(1)
    return found[:, :3].float() if not found.is_complex() else found[:, :3].abs().float()


def loss_of(call: Callable[[Tensor], Any], batch: Batch, reduction: str = "mean") -> Any:
    return functional.cross_entropy(_logits(call(batch[0])), batch[1], reduction=reduction)


def evaluation(net: nn.Module, call: Callable[[Tensor], Any] | None = None, guard: Any = torch.no_grad) -> Any:
    def evaluate(batch: Batch) -> Any:
        net.eval()
        with guard():
            loss = loss_of(net if call is None else call, batch, "none")
        net.train()
        return loss

    return evaluate


def adam(net: nn.Module) -> Any:
    return torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=0.01)


def sgd(net: nn.Module) -> Any:
    return torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)


def train_on(optimizer: Any, loss: Any) -> Any:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def plain(net: nn.Module, optimizer: Any = None, call: Any = None, watched: Any = None, **more: Any) -> Setup:
    optimizer = adam(net) if optimizer is None else optimizer
    call = net if call is None else call
    settings: dict[str, Any] = {
        "watched": net if watched is None else watched,
        "optimizers": optimizer,
        "iterate": lambda batch, _: train_on(optimizer, loss_of(call, batch)),
        "evaluate": evaluation(net, call),
    }
    return Setup(**{**settings, **more})
