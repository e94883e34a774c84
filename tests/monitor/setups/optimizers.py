"""Kinds of optimisers."""

from collections.abc import Callable
from typing import Any

import torch
from tests.monitor import loops
from tests.monitor.setups.models import Attending, Embedding, convolving, mlp
from tests.monitor.setups.setup import Batch, Compile, Make, Setup, evaluation, loss_of, plain, register, sgd
from torch import nn

_OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    "sgd, fused": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, fused=True),
    "adam, foreach": lambda p: torch.optim.Adam(p, lr=0.01, foreach=True),
    "adam, amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True, maximize=False),
    "adamw, fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "adamw, a tensor as rate": lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.01)),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
    "adadelta": torch.optim.Adadelta,
    "adamax": torch.optim.Adamax,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "rprop": torch.optim.Rprop,
    "asgd": torch.optim.ASGD,
    "adafactor": torch.optim.Adafactor,
}


def _of_optimizer(make: Callable[[Any], Any]) -> Make:
    def setup(_: Compile) -> Setup:
        net = mlp()
        return plain(net, make(net.parameters()))

    return setup


for _name, _kind in _OPTIMIZERS.items():
    register(f"optimiser: {_name}")(_of_optimizer(_kind))


@register("optimiser: sparse adam")
def _sparse(_: Compile) -> Setup:
    net = Embedding(sparse=True)
    optimizers = {
        "table": torch.optim.SparseAdam(net.table.parameters(), lr=0.01),
        "head": torch.optim.Adam(net.head.parameters(), lr=0.01),
    }

    def iterate(batch: Batch, _: int) -> Any:
        loss = loss_of(net, batch)
        net.zero_grad()
        loss.backward()
        for optimizer in optimizers.values():
            optimizer.step()
        return loss

    return Setup(watched=net, optimizers=optimizers, iterate=iterate, evaluate=evaluation(net))


@register("optimiser: lbfgs")
def _lbfgs(_: Compile) -> Setup:
    net = loops.model()
    optimizer: Any = torch.optim.LBFGS(net.parameters(), max_iter=3, line_search_fn="strong_wolfe")
    return plain(net, optimizer, iterate=lambda batch, _: optimizer.step(closure_of(net, optimizer, batch)))


def closure_of(net: nn.Module, optimizer: Any, batch: Batch) -> Any:
    def closure() -> Any:
        optimizer.zero_grad()
        loss = loss_of(net, batch)
        loss.backward()
        return loss

    return closure


@register("optimiser: closures")
def _closures(_: Compile) -> Setup:
    net = Attending()
    optimizer = sgd(net)
    return plain(net, optimizer, iterate=lambda batch, _: optimizer.step(closure=closure_of(net, optimizer, batch)))


class SAM(torch.optim.SGD):
    """Sharpness-aware: the gradient of a step is that at a place uphill."""

    @torch.no_grad()
    def climb(self) -> None:
        self.before = [p.clone() for group in self.param_groups for p in group["params"]]
        found = [p for group in self.param_groups for p in group["params"]]
        norm = torch.stack([p.grad.norm() for p in found]).norm()
        for p in found:
            p.add_(p.grad * (0.05 / (norm + 1e-12)))

    @torch.no_grad()
    def descend(self) -> None:
        for p, old in zip([p for g in self.param_groups for p in g["params"]], self.before, strict=True):
            p.copy_(old)
        self.step()


@register("optimiser: sam, two passes a step")
def _sam(_: Compile) -> Setup:
    net = convolving()
    optimizer = SAM(net.parameters(), lr=0.05, momentum=0.9)

    def iterate(batch: Batch, _: int) -> Any:
        loss = closure_of(net, optimizer, batch)()
        optimizer.climb()
        closure_of(net, optimizer, batch)()
        optimizer.descend()
        return loss

    return plain(net, optimizer, iterate=iterate)
