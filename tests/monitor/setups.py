"""More than a hundred kinds of training: models, loops, optimisers, evaluations, copies and compiled parts.

All take vectors of six numbers and classes 0, 1 and 2 (see `loops.batches`).
"""

import copy
import dataclasses
import io
import pickle
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_, clip_grad_value_, parametrizations
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from . import loops

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


def _setup(name: str) -> Callable[[Make], Make]:
    def add(make: Make) -> Make:
        assert name not in SETUPS
        SETUPS[name] = make
        return make

    return add


def _logits(output: Any) -> Tensor:
    if isinstance(output, Mapping):
        output = output["logits"]
    elif dataclasses.is_dataclass(output):
        output = output.logits  # type: ignore[attr-defined]
    found: Tensor = output[0] if isinstance(output, tuple) else output
    found = found if found.dim() == 2 else found.mean(1)
    return found[:, :3].float() if not found.is_complex() else found[:, :3].abs().float()


def _loss(call: Callable[[Tensor], Any], batch: Batch, reduction: str = "mean") -> Any:
    return functional.cross_entropy(_logits(call(batch[0])), batch[1], reduction=reduction)


def _evaluation(net: nn.Module, call: Callable[[Tensor], Any] | None = None, guard: Any = torch.no_grad) -> Any:
    def evaluate(batch: Batch) -> Any:
        net.eval()
        with guard():
            loss = _loss(net if call is None else call, batch, "none")
        net.train()
        return loss

    return evaluate


def _adam(net: nn.Module) -> Any:
    return torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=0.01)


def _sgd(net: nn.Module) -> Any:
    return torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)


def _step(optimizer: Any, loss: Any) -> Any:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def _plain(net: nn.Module, optimizer: Any = None, call: Any = None, watched: Any = None, **more: Any) -> Setup:
    optimizer = _adam(net) if optimizer is None else optimizer
    call = net if call is None else call
    settings: dict[str, Any] = {
        "watched": net if watched is None else watched,
        "optimizers": optimizer,
        "iterate": lambda batch, _: _step(optimizer, _loss(call, batch)),
        "evaluate": _evaluation(net, call),
    }
    return Setup(**{**settings, **more})


# Models.


def _mlp(dropout: float = 0.2) -> nn.Sequential:
    return loops.model(dropout=dropout)


def _shut(x: Tensor) -> Tensor:
    """Which tokens are none, never the first."""
    return (x > 0.5) & (torch.arange(x.shape[1]) > 0)


class Encoder(nn.Module):
    """Each number a token; torch takes a fused path through its layers in evaluations, which has other bits."""

    def __init__(self, layers: int = 2, dropout: float = 0.1) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embed = nn.Linear(1, 8)
        self.layers = nn.ModuleList(
            [nn.TransformerEncoderLayer(8, 2, 16, dropout, batch_first=True) for _ in range(layers)]
        )
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Any:
        tokens = self.embed(x.unsqueeze(-1))
        for layer in self.layers:
            tokens = layer(tokens, src_key_padding_mask=_shut(x))
        return self.head(tokens.mean(1))


class Stacked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embed = nn.Linear(1, 8)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.1, batch_first=True), 2)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.encoder(self.embed(x.unsqueeze(-1)), src_key_padding_mask=_shut(x))[:, 0])


class Block(nn.Module):
    """Attention of one's own, by one of torch's functions or by hand."""

    def __init__(self, *, by_hand: bool = False, around: Callable[..., Any] | None = None) -> None:
        super().__init__()
        self.norm, self.qkv, self.down = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)
        self.by_hand, self.around = by_hand, around

    def inner(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        if self.by_hand:
            return torch.softmax(q @ k.mT / 8**0.5, -1) @ v  # type: ignore[no-any-return]
        return functional.scaled_dot_product_attention(q, k, v)

    def forward(self, x: Tensor) -> Any:
        attended = self.inner(x) if self.around is None else self.around(self.inner, x)
        return x + self.down(torch.relu_(attended.clone()))


class Attending(nn.Module):
    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embed = nn.Linear(1, 8)
        self.blocks = nn.Sequential(*(blocks or (Block(), Block(by_hand=True))))
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.blocks(self.embed(x.unsqueeze(-1))).mean(1))


def _convolving(norm: Callable[[int], nn.Module] = nn.BatchNorm2d) -> nn.Module:
    torch.manual_seed(1)
    layers: list[nn.Module] = [nn.Unflatten(1, (1, 2, 3))]
    for channels in ((1, 4), (4, 4)):
        layers += [nn.Conv2d(*channels, 3, padding=1), norm(4), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(24, 3))


class Recurrent(nn.Module):
    def __init__(self, kind: Any) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.cells, self.head = kind(1, 5, batch_first=True, num_layers=2, dropout=0.1), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.cells(x.unsqueeze(-1))[0][:, -1])


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.inner, self.outer = nn.Linear(6, 6), nn.Linear(6, 6, bias=False)
        self.outer.weight = self.inner.weight
        self.twice = self.inner

    def forward(self, x: Tensor) -> Any:
        return self.outer(torch.tanh(self.twice(self.inner(x))))


class Embedding(nn.Module):
    def __init__(self, *, sparse: bool) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.table, self.head = nn.Embedding(16, 4, sparse=sparse), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.table((x * 4).long().clamp(0, 15)).mean(1))


@dataclasses.dataclass
class Answer:
    logits: Tensor
    hidden: tuple[Tensor, ...]


class Answering(nn.Module):
    """What it gives is no tensor."""

    def __init__(self, kind: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.body, self.kind = _mlp(), kind

    def forward(self, x: Tensor) -> Any:
        hidden = self.body[:2](x)
        return self.kind(self.body[2:](hidden), hidden)


class Halved(torch.autograd.Function):
    """With a gradient of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] / 2


class Custom(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = _mlp()

    def forward(self, x: Tensor) -> Any:
        return Halved.apply(self.body(x))  # type: ignore[no-untyped-call]


class InPlace(nn.Module):
    """Changes views of what its modules give."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Any:
        y = self.a(x)
        y[:, ::2].mul_(0.5)
        y = functional.leaky_relu_(y + 1) * 2
        return self.b(y.add_(1))


class Checkpointed(nn.Module):
    def __init__(self, *, reentrant: bool, body: nn.Module | None = None) -> None:
        super().__init__()
        self.body, self.reentrant = body or _mlp(), reentrant

    def forward(self, x: Tensor) -> Any:
        return checkpoint(self.body, x.requires_grad_(), use_reentrant=self.reentrant)  # type: ignore[no-untyped-call]


class Calling(nn.Sequential):
    """With a `__call__` of its own."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **kwargs)


class Noisy(nn.Module):
    """Draws from all three generators."""

    def __init__(self) -> None:
        super().__init__()
        self.body = _mlp()

    def forward(self, x: Tensor) -> Any:
        if self.training:
            x = x + 0.1 * torch.randn_like(x) + 0.1 * random.random() + 0.1 * float(np.random.rand())  # noqa: NPY002
        return self.body(x)


class Skipping(nn.Module):
    """Leaves blocks out by chance."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(6, 6), nn.GELU()) for _ in range(4)])
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Any:
        for block in self.blocks:
            if not self.training or torch.rand(()) > 0.4:
                x = x + block(x)
        return self.head(x)


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.a, self.b = nn.Linear(6, 8, dtype=torch.complex64), nn.Linear(8, 3, dtype=torch.complex64)

    def forward(self, x: Tensor) -> Any:
        return self.b(torch.tanh(self.a(x.to(torch.complex64))))


def _own_hooks() -> nn.Module:
    net = _mlp()
    net[0].register_forward_hook(lambda module, args, output: output * 1.5)
    net[1].register_forward_pre_hook(lambda module, args: (args[0] + 0.1,))
    net[3].register_full_backward_hook(lambda module, given, back: (given[0] * 0.9, *given[1:]))
    next(net.parameters()).register_hook(lambda gradient: gradient.clamp(-1, 1))
    return net


def _frozen() -> nn.Module:
    net = Encoder()
    for parameter in net.layers.parameters():
        parameter.requires_grad_(False)
    net.layers[0].train(False)
    return net


def _half_precision() -> nn.Module:
    return _mlp().to(torch.bfloat16)


def _parametrised(kind: Callable[[nn.Module], nn.Module]) -> nn.Module:
    net = _mlp()
    net[0], net[3] = kind(net[0]), kind(net[3])
    return net


def _lazy() -> nn.Module:
    torch.manual_seed(1)
    net = nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(3))
    net(torch.ones(2, 6))
    return net


_MODELS: dict[str, Callable[[], nn.Module]] = {
    "mlp with dropout": _mlp,
    "encoder": Encoder,
    "stack of encoders": Stacked,
    "attention": Attending,
    "convolutions and batch norm": _convolving,
    "group norm": lambda: _convolving(lambda n: nn.GroupNorm(2, n)),
    "instance norm": lambda: _convolving(lambda n: nn.InstanceNorm2d(n, affine=True, track_running_stats=True)),
    "batch norm of all batches": lambda: _convolving(lambda n: nn.BatchNorm2d(n, momentum=None)),
    "gru": lambda: Recurrent(nn.GRU),
    "lstm": lambda: Recurrent(nn.LSTM),
    "tied weights": Tied,
    "embedding": lambda: Embedding(sparse=False),
    "a dictionary as output": lambda: Answering(lambda logits, hidden: {"hidden": [hidden], "logits": logits}),
    "a dataclass as output": lambda: Answering(lambda logits, hidden: Answer(logits, (hidden,))),
    "a tuple as output": lambda: Answering(lambda logits, hidden: (logits, None, {"h": hidden})),
    "autograd function": Custom,
    "changes in place": InPlace,
    "checkpointing, reentrant": lambda: Checkpointed(reentrant=True),
    "checkpointing, not reentrant": lambda: Checkpointed(reentrant=False),
    "checkpointed attention": lambda: Checkpointed(reentrant=False, body=Attending()),
    "attention with a checkpoint inside": lambda: Attending(
        Block(around=lambda f, x: checkpoint(f, x, use_reentrant=False)),
        Block(),  # type: ignore[no-untyped-call]
    ),
    "a call of its own": lambda: Calling(*_mlp()),
    "all generators": Noisy,
    "blocks left out by chance": Skipping,
    "complex parameters": Complex,
    "hooks of its own": _own_hooks,
    "frozen encoder": _frozen,
    "bfloat16 parameters": _half_precision,
    "float64 parameters": lambda: nn.Sequential(_Cast(), _mlp().double()),
    "weight norm": lambda: _parametrised(parametrizations.weight_norm),
    "spectral norm": lambda: _parametrised(parametrizations.spectral_norm),
    "orthogonal": lambda: _parametrised(parametrizations.orthogonal),
    "lazy modules": _lazy,
    "data parallel": lambda: nn.DataParallel(_mlp()),
    "one layer": lambda: nn.Linear(6, 3),
    "decoder layer": lambda: _Decoding(),
    "multi-head attention": lambda: _Heads(),
}


class _Cast(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.double()


class _Decoding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embed, self.layer = nn.Linear(1, 8), nn.TransformerDecoderLayer(8, 2, 16, 0.1, batch_first=True)

    def forward(self, x: Tensor) -> Any:
        tokens = self.embed(x.unsqueeze(-1))
        return self.layer(tokens, tokens)


class _Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embed, self.heads = nn.Linear(1, 8), nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)

    def forward(self, x: Tensor) -> Any:
        tokens = self.embed(x.unsqueeze(-1))
        return self.heads(tokens, tokens, tokens, need_weights=False)[0]


def _of_model(make: Callable[[], nn.Module]) -> Make:
    def setup(_: Compile) -> Setup:
        net = make()
        if isinstance(net[0] if isinstance(net, nn.Sequential) else None, _Cast) or any(
            parameter.dtype is torch.bfloat16 for parameter in net.parameters()
        ):
            dtype = next(net.parameters()).dtype
            return _plain(net, call=lambda x: net(x.to(dtype)))
        return _plain(net)

    return setup


for _name, _made in _MODELS.items():
    _setup(f"model: {_name}")(_of_model(_made))


# Optimisers.

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
        net = _mlp()
        return _plain(net, make(net.parameters()))

    return setup


for _name, _kind in _OPTIMIZERS.items():
    _setup(f"optimiser: {_name}")(_of_optimizer(_kind))


@_setup("optimiser: sparse adam")
def _sparse(_: Compile) -> Setup:
    net = Embedding(sparse=True)
    optimizers = {
        "table": torch.optim.SparseAdam(net.table.parameters(), lr=0.01),
        "head": torch.optim.Adam(net.head.parameters(), lr=0.01),
    }

    def iterate(batch: Batch, _: int) -> Any:
        loss = _loss(net, batch)
        net.zero_grad()
        loss.backward()
        for optimizer in optimizers.values():
            optimizer.step()
        return loss

    return Setup(watched=net, optimizers=optimizers, iterate=iterate, evaluate=_evaluation(net))


@_setup("optimiser: lbfgs")
def _lbfgs(_: Compile) -> Setup:
    net = loops.model()
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3, line_search_fn="strong_wolfe")
    return _plain(net, optimizer, iterate=lambda batch, _: optimizer.step(_closure(net, optimizer, batch)))


def _closure(net: nn.Module, optimizer: Any, batch: Batch) -> Any:
    def closure() -> Any:
        optimizer.zero_grad()
        loss = _loss(net, batch)
        loss.backward()
        return loss

    return closure


@_setup("optimiser: closures")
def _closures(_: Compile) -> Setup:
    net = Attending()
    optimizer = _sgd(net)
    return _plain(net, optimizer, iterate=lambda batch, _: optimizer.step(closure=_closure(net, optimizer, batch)))


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


@_setup("optimiser: sam, two passes a step")
def _sam(_: Compile) -> Setup:
    net = _convolving()
    optimizer = SAM(net.parameters(), lr=0.05, momentum=0.9)

    def iterate(batch: Batch, _: int) -> Any:
        loss = _closure(net, optimizer, batch)()
        optimizer.climb()
        _closure(net, optimizer, batch)()
        optimizer.descend()
        return loss

    return _plain(net, optimizer, iterate=iterate)


# Loops.


@_setup("loop: clipping of the norm")
def _clipped(_: Compile) -> Setup:
    net = _mlp()
    optimizer = _sgd(net)

    def iterate(batch: Batch, step: int) -> Any:
        optimizer.zero_grad()
        loss = _loss(net, batch)
        loss.backward()
        clip_grad_norm_(net.parameters(), 0.1)
        if step % 2:
            clip_grad_value_(net.parameters(), 0.01)
        optimizer.step()
        return loss

    return _plain(net, optimizer, iterate=iterate)


@_setup("loop: accumulation")
def _accumulated(_: Compile) -> Setup:
    net = Encoder()
    optimizer = _adam(net)

    def iterate(batch: Batch, step: int) -> Any:
        loss = _loss(net, batch) / 3
        loss.backward()
        if step % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()
        return loss

    return _plain(net, optimizer, iterate=iterate)


@_setup("loop: bfloat16 by autocast")
def _autocast(_: Compile) -> Setup:
    net = Attending()
    optimizer = _adam(net)

    def iterate(batch: Batch, _: int) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            loss = _loss(net, batch)
        return _step(optimizer, loss)

    return _plain(net, optimizer, iterate=iterate)


@_setup("loop: float16 with a scaler")
def _scaled(_: Compile) -> Setup:
    net, scaler = _mlp(), torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=3)
    optimizer = _adam(net)

    def iterate(batch: Batch, _: int) -> Any:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = _loss(net, batch)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss

    return _plain(net, optimizer, iterate=iterate, also=lambda: [torch.tensor(scaler.get_scale())])


@_setup("loop: one-cycle schedule")
def _scheduled(_: Compile) -> Setup:
    net = _mlp()
    optimizer = _sgd(net)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=40)

    def iterate(batch: Batch, _: int) -> Any:
        loss = _step(optimizer, _loss(net, batch))
        schedule.step()
        return loss

    return _plain(net, optimizer, iterate=iterate, also=lambda: [torch.tensor(schedule.get_last_lr())])


@_setup("loop: the rate follows the evaluation")
def _plateau(_: Compile) -> Setup:
    net = Encoder()
    optimizer = _adam(net)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    evaluation = _evaluation(net)

    def evaluate(batch: Batch) -> Any:
        loss = evaluation(batch)
        schedule.step(float(loss.mean()))
        return loss

    return _plain(net, optimizer, evaluate=evaluate, also=lambda: [torch.tensor(schedule.get_last_lr())])


def _penalised(net: nn.Module, optimizer: Any, batch: Batch) -> Any:
    x = batch[0].clone().requires_grad_()
    loss = _loss(net, (x, batch[1]))
    (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
    return _step(optimizer, loss + gradient.square().sum())


@_setup("loop: gradient penalty, a double backward")
def _double(_: Compile) -> Setup:
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer = _adam(net)
    return _plain(net, optimizer, iterate=lambda batch, _: _penalised(net, optimizer, batch))


@_setup("loop: gradient penalty of attention")
def _double_attention(_: Compile) -> Setup:
    net = Attending(Block(by_hand=True), Block(by_hand=True))
    optimizer = _adam(net)
    return _plain(net, optimizer, iterate=lambda batch, _: _penalised(net, optimizer, batch))


@_setup("loop: an inner step that is differentiated")
def _meta(_: Compile) -> Setup:
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer = _adam(net)

    def iterate(batch: Batch, _: int) -> Any:
        names, values = zip(*net.named_parameters(), strict=True)
        gradients = torch.autograd.grad(_loss(net, batch), values, create_graph=True)
        moved = {n: v - 0.1 * g for n, v, g in zip(names, values, gradients, strict=True)}
        return _step(optimizer, _loss(lambda x: torch.func.functional_call(net, moved, (x,)), batch))

    return _plain(net, optimizer, iterate=iterate)


@_setup("loop: functional call")
def _functional(_: Compile) -> Setup:
    net = Encoder()
    weights = dict(net.named_parameters())
    return _plain(net, call=lambda x: torch.func.functional_call(net, weights, (x,)))


@_setup("loop: gradients of each sample by vmap")
def _per_sample(_: Compile) -> Setup:
    net = loops.model()
    optimizer = _sgd(net)

    def one(weights: Any, x: Tensor, y: Tensor) -> Any:
        return functional.cross_entropy(torch.func.functional_call(net, weights, (x[None],)), y[None])

    def iterate(batch: Batch, _: int) -> Any:
        weights = {name: p.detach() for name, p in net.named_parameters()}
        found = torch.func.vmap(torch.func.grad(one), (None, 0, 0))(weights, *batch)
        loss = _loss(net, batch)
        optimizer.zero_grad()
        for name, p in net.named_parameters():
            p.grad = found[name].clamp(-0.1, 0.1).mean(0)
        optimizer.step()
        return loss

    return _plain(net, optimizer, iterate=iterate)


@_setup("loop: stacked ensemble evaluated by vmap")
def _ensemble(_: Compile) -> Setup:
    net = loops.model()

    def evaluate(batch: Batch) -> Any:
        weights, buffers = torch.func.stack_module_state([net, copy.deepcopy(net)])
        base = copy.deepcopy(net).to("meta")
        call = torch.func.vmap(lambda w, b, x: torch.func.functional_call(base, (w, b), (x,)), (0, 0, None))
        return functional.cross_entropy(call(weights, buffers, batch[0]).mean(0), batch[1]).detach()

    return _plain(net, evaluate=evaluate)


@_setup("loop: a game of two networks")
def _game(_: Compile) -> Setup:
    torch.manual_seed(1)
    g = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 6))
    d = nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2, inplace=True), nn.Linear(8, 1))
    og, od = torch.optim.Adam(g.parameters(), lr=0.01), torch.optim.Adam(d.parameters(), lr=0.01)

    def iterate(batch: Batch, _: int) -> Any:
        fake = g(torch.randn(len(batch[0]), 4))
        loss = functional.softplus(-d(batch[0])).mean() + functional.softplus(d(fake.detach())).mean()
        _step(od, loss)
        _step(og, functional.softplus(-d(fake)).mean())
        return loss

    def evaluate(batch: Batch) -> Any:
        g.eval()
        with torch.inference_mode():
            loss = d(g(torch.ones(4, 4))).mean()
        g.train()
        return loss

    return Setup(watched={"G": g, "D": d}, optimizers={"G": og, "D": od}, iterate=iterate, evaluate=evaluate)


@_setup("loop: student and teacher")
def _distilled(_: Compile) -> Setup:
    net = _mlp()
    teacher = copy.deepcopy(net).eval()
    optimizer = _adam(net)

    def iterate(batch: Batch, _: int) -> Any:
        with torch.no_grad():
            wanted = teacher(batch[0]).softmax(-1)
        return _step(optimizer, functional.cross_entropy(net(batch[0]), wanted))

    return _plain(net, optimizer, iterate=iterate)


@_setup("loop: two views of a batch")
def _contrastive(_: Compile) -> Setup:
    net = Encoder()
    optimizer = _adam(net)

    def iterate(batch: Batch, _: int) -> Any:
        a, b = net(batch[0]), net(batch[0] + 0.1 * torch.randn_like(batch[0]))
        return _step(optimizer, (a - b).square().mean() + functional.cross_entropy(a, batch[1]))

    return _plain(net, optimizer, iterate=iterate)


@_setup("loop: two backward passes through one graph")
def _retained(_: Compile) -> Setup:
    net = _mlp()
    optimizer = _adam(net)

    def iterate(batch: Batch, _: int) -> Any:
        optimizer.zero_grad()
        output = net(batch[0])
        loss = functional.cross_entropy(output, batch[1])
        loss.backward(retain_graph=True)
        output.square().mean().backward()
        optimizer.step()
        return loss

    return _plain(net, optimizer, iterate=iterate)


@_setup("loop: gradients set by hand")
def _by_hand(_: Compile) -> Setup:
    net = Attending()
    optimizer = _adam(net)

    def iterate(batch: Batch, _: int) -> Any:
        loss = _loss(net, batch)
        for p, gradient in zip(net.parameters(), torch.autograd.grad(loss, list(net.parameters())), strict=True):
            p.grad = gradient.sign() * 0.1 + 0.01 * torch.randn_like(gradient)
        optimizer.step()
        return loss

    return _plain(net, optimizer, iterate=iterate)


@_setup("loop: an attack on the inputs first")
def _adversarial(_: Compile) -> Setup:
    net = _convolving()
    optimizer = _sgd(net)

    def iterate(batch: Batch, _: int) -> Any:
        x = batch[0].clone().requires_grad_()
        _loss(net, (x, batch[1])).backward()
        assert x.grad is not None
        return _step(optimizer, _loss(net, (batch[0] + 0.1 * x.grad.sign(), batch[1])))

    return _plain(net, optimizer, iterate=iterate)


@_setup("loop: acting before learning")
def _acting(_: Compile) -> Setup:
    net = _mlp()
    optimizer = _adam(net)

    def iterate(batch: Batch, _: int) -> Any:
        with torch.no_grad():
            actions = torch.distributions.Categorical(logits=net(batch[0])).sample()
        rewards = (actions == batch[1]).float()
        chosen = net(batch[0]).log_softmax(-1).gather(1, actions[:, None]).squeeze(1)
        return _step(optimizer, -(chosen * rewards).mean())

    return _plain(net, optimizer, iterate=iterate)


@_setup("loop: a batch that fails is left out")
def _failing(_: Compile) -> Setup:
    net = Encoder()
    optimizer = _adam(net)

    def iterate(batch: Batch, step: int) -> Any:
        if step % 4 == 1:
            try:
                net(batch[0].double())
            except RuntimeError:
                pass
            else:
                raise AssertionError
        return _step(optimizer, _loss(net, batch))

    return _plain(net, optimizer, iterate=iterate)


@_setup("loop: parts of the model are called, the whole never")
def _parts(_: Compile) -> Setup:
    net = nn.ModuleDict({"body": Encoder(), "head": nn.Linear(3, 3)})
    return _plain(net, call=lambda x: net["head"](net["body"](x)))


@_setup("loop: parameters freed on the way")
def _freed(_: Compile) -> Setup:
    net = _mlp()
    net[0].requires_grad_(False)
    optimizer = torch.optim.SGD(net[3].parameters(), lr=0.05)

    def iterate(batch: Batch, step: int) -> Any:
        if step == 5:
            net[0].requires_grad_(True)
            optimizer.add_param_group({"params": list(net[0].parameters()), "lr": 0.01})
        return _step(optimizer, _loss(net, batch))

    return _plain(net, optimizer, iterate=iterate)


@_setup("loop: a shuffled loader")
def _loader(_: Compile) -> Setup:
    net = _mlp()
    optimizer = _adam(net)
    data = DataLoader(TensorDataset(*next(loops.batches(1, size=24))), batch_size=8, shuffle=True)

    def iterate(_: Batch, __: int) -> Any:
        loss: Any = None
        for batch in data:
            loss = _step(optimizer, _loss(net, batch))
        return loss

    return _plain(net, optimizer, iterate=iterate)


@_setup("loop: driven by a generator")
def _generated(_: Compile) -> Setup:
    net = _convolving()
    optimizer = _adam(net)

    def train() -> Iterator[Any]:
        loss = None
        while True:
            batch = yield loss
            loss = _step(optimizer, _loss(net, batch))

    training: Any = train()
    next(training)
    return _plain(net, optimizer, iterate=lambda batch, _: training.send(batch))


@_setup("loop: batches of all sizes")
def _sizes(_: Compile) -> Setup:
    net = Encoder()
    optimizer = _adam(net)
    return _plain(
        net,
        optimizer,
        iterate=lambda batch, step: _step(optimizer, _loss(net, (batch[0][: 1 + step % 7], batch[1][: 1 + step % 7]))),
    )


@_setup("loop: activations kept by a hook of the user's for the step")
def _features(_: Compile) -> Setup:
    net = Encoder()
    optimizer = _adam(net)

    def iterate(batch: Batch, _: int) -> Any:
        kept: list[Tensor] = []
        handle = net.layers[0].register_forward_hook(lambda module, args, output: kept.append(output))
        loss = _loss(net, batch)
        handle.remove()
        return _step(optimizer, loss + 0.01 * kept[0].square().mean())

    return _plain(net, optimizer, iterate=iterate)


@_setup("loop: parameters flattened into one vector and back")
def _flattened(_: Compile) -> Setup:
    net = _mlp()
    optimizer = _sgd(net)

    def iterate(batch: Batch, step: int) -> Any:
        loss = _step(optimizer, _loss(net, batch))
        if step % 3 == 2:
            vector = nn.utils.parameters_to_vector(net.parameters())
            nn.utils.vector_to_parameters(vector.detach() * 0.99, net.parameters())
        return loss

    return _plain(net, optimizer, iterate=iterate)


# Evaluations.


@_setup("evaluation: in inference mode")
def _inference(_: Compile) -> Setup:
    net = Encoder()
    return _plain(net, evaluate=_evaluation(net, guard=torch.inference_mode))


@_setup("evaluation: with gradients on, for the inputs")
def _saliency(_: Compile) -> Setup:
    net = Attending()

    def evaluate(batch: Batch) -> Any:
        x = batch[0].clone().requires_grad_()
        net.eval()
        (gradient,) = torch.autograd.grad(_loss(net, (x, batch[1])), x)
        net.train()
        return gradient.abs().sum()

    return _plain(net, evaluate=evaluate)


@_setup("evaluation: with gradients on, of a frozen encoder")
def _frozen_evaluation(_: Compile) -> Setup:
    net = _frozen()
    net.requires_grad_(False)
    net.head.requires_grad_(True)
    return _plain(net, evaluate=_evaluation(net, guard=torch.enable_grad))


@_setup("evaluation: a layer of the encoder by itself")
def _layer(_: Compile) -> Setup:
    torch.manual_seed(1)
    net = nn.TransformerEncoderLayer(6, 2, 12, 0.1, batch_first=True)

    def call(x: Tensor) -> Any:
        return net(torch.stack([x, x.roll(1, 1), x.roll(2, 1)], 1), src_key_padding_mask=_shut(x[:, :3]))

    return _plain(net, call=call)


@_setup("evaluation: between forward and backward")
def _between(_: Compile) -> Setup:
    net = Encoder()
    optimizer = _adam(net)
    evaluation = _evaluation(net)
    found: list[Tensor] = []

    def iterate(batch: Batch, _: int) -> Any:
        loss = _loss(net, batch)
        found.append(evaluation(batch))
        return _step(optimizer, loss)

    return _plain(net, optimizer, iterate=iterate, also=lambda: found)


@_setup("evaluation: dropout left on, many times")
def _monte_carlo(_: Compile) -> Setup:
    net = _mlp()

    def evaluate(batch: Batch) -> Any:
        with torch.no_grad():
            return torch.stack([_loss(net, batch) for _ in range(3)]).std()

    return _plain(net, evaluate=evaluate)


# Copies.


def _deep(net: nn.Module) -> Any:
    return copy.deepcopy(net)


def _pickled(net: nn.Module) -> Any:
    return pickle.loads(pickle.dumps(net))


def _saved(net: nn.Module) -> Any:
    torch.save(net, file := io.BytesIO())
    file.seek(0)
    return torch.load(file, weights_only=False)


def _scripted(net: nn.Module) -> Any:
    return torch.jit.script(net)


def _traced(net: nn.Module) -> Any:
    return torch.jit.trace(net.eval(), torch.ones(8, 6), check_trace=False)  # type: ignore[no-untyped-call]


def _symbolic(net: nn.Module) -> Any:
    return torch.fx.symbolic_trace(net)


_COPIES: dict[str, tuple[Callable[[nn.Module], Any], Callable[[], nn.Module]]] = {
    "deepcopy": (_deep, Encoder),
    "pickle": (_pickled, Encoder),
    "torch.save of the whole": (_saved, _convolving),
    "torch.jit.script": (_scripted, _convolving),
    "torch.jit.script of a layer": (_scripted, lambda: nn.Linear(6, 3)),
    "torch.jit.trace": (_traced, _convolving),
    "torch.fx": (_symbolic, _mlp),
}


def hooks_of(net: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in net.modules())


def _of_copy(copied: Callable[[nn.Module], Any], make: Callable[[], nn.Module]) -> Make:
    def setup(_: Compile) -> Setup:
        net = make()
        optimizer = _adam(net)
        found: list[Tensor] = []

        def iterate(batch: Batch, _: int) -> Any:
            loss = _loss(net, batch)
            other = copied(net).eval()
            net.train()
            with torch.no_grad():
                found.append(_loss(other, batch, "none"))
            return _step(optimizer, loss)

        def evaluate(batch: Batch) -> Any:
            net.eval()
            other = copied(net).eval()
            net.train()
            if not isinstance(other, torch.jit.ScriptModule):
                assert hooks_of(other) == 0
            with torch.no_grad():
                return _loss(other, batch, "none")

        return _plain(net, optimizer, iterate=iterate, evaluate=evaluate, also=lambda: found)

    return setup


for _name, (_copied, _made) in _COPIES.items():
    _setup(f"copy: {_name}")(_of_copy(_copied, _made))


@_setup("copy: weights averaged by hand")
def _ema(_: Compile) -> Setup:
    net = Encoder()
    optimizer = _adam(net)
    average = copy.deepcopy(net).eval()

    def iterate(batch: Batch, _: int) -> Any:
        loss = _step(optimizer, _loss(net, batch))
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), net.parameters(), strict=True):
                slow.lerp_(fast, 0.1)
        return loss

    return _plain(
        net, optimizer, iterate=iterate, evaluate=_evaluation(average), also=lambda: list(average.state_dict().values())
    )


@_setup("copy: averaged model")
def _averaged(_: Compile) -> Setup:
    net = _convolving()
    optimizer = _sgd(net)
    average = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)

    def iterate(batch: Batch, _: int) -> Any:
        loss = _step(optimizer, _loss(net, batch))
        average.update_parameters(net)
        return loss

    return _plain(
        net, optimizer, iterate=iterate, evaluate=_evaluation(average), also=lambda: list(average.state_dict().values())
    )


@_setup("copy: averaged model made in the middle, with its batch norms")
def _swa(_: Compile) -> Setup:
    net = _convolving()
    optimizer = _sgd(net)
    schedule = SWALR(optimizer, swa_lr=0.02)
    averages: list[AveragedModel] = []

    def iterate(batch: Batch, step: int) -> Any:
        loss = _loss(net, batch)
        if step == 4:
            averages.append(AveragedModel(net))
        loss = _step(optimizer, loss)
        if averages:
            averages[0].update_parameters(net)
            schedule.step()
        return loss

    def evaluate(batch: Batch) -> Any:
        if not averages:
            return _evaluation(net)(batch)
        update_bn([batch], averages[0])
        return _evaluation(averages[0])(batch)

    return _plain(net, optimizer, iterate=iterate, evaluate=evaluate)


@_setup("copy: model and optimiser go on as copies of their own")
def _rehearsal(_: Compile) -> Setup:
    """As learning-rate finders do: a few steps of copies, thrown away."""
    net = _mlp()
    optimizer = _adam(net)
    found: list[Tensor] = []

    def evaluate(batch: Batch) -> Any:
        twin, twins = copy.deepcopy((net, optimizer))
        for _ in range(2):
            found.append(_step(twins, _loss(twin, batch)).detach())
        thawed = pickle.loads(pickle.dumps(optimizer))
        assert not thawed._optimizer_step_pre_hooks
        assert not twins._optimizer_step_post_hooks
        return _evaluation(twin)(batch)

    return _plain(net, optimizer, evaluate=evaluate, also=lambda: found)


@_setup("copy: gone back to a checkpoint")
def _restored(_: Compile) -> Setup:
    net = _convolving()
    optimizer = _adam(net)
    kept: dict[str, Any] = {}

    def iterate(batch: Batch, step: int) -> Any:
        if step == 3:
            kept.update(net=copy.deepcopy(net.state_dict()), optimizer=copy.deepcopy(optimizer.state_dict()))
        if step == 7:
            net.load_state_dict(kept["net"])
            optimizer.load_state_dict(kept["optimizer"])
        return _step(optimizer, _loss(net, batch))

    return _plain(net, optimizer, iterate=iterate)


# Compiled parts.


@_setup("compiled: a function, called in steps and evaluations")
def _compiled_function(compiled: Compile) -> Setup:
    net = Attending()
    return _plain(net, call=compiled(lambda x: net(x)))


@_setup("compiled: a function, its graph whole")
def _full_graph(compiled: Compile) -> Setup:
    net = Encoder(dropout=0.0)
    return _plain(net, call=compiled(lambda x: net(x), fullgraph=True))


@_setup("compiled: a function of evaluations alone, its graph whole")
def _compiled_evaluation(compiled: Compile) -> Setup:
    net = Attending()
    return _plain(net, evaluate=_evaluation(net, compiled(lambda x: net(x), fullgraph=True)))


@_setup("compiled: a function of evaluations alone, of a convolutional model")
def _compiled_evaluation_of_convolutions(compiled: Compile) -> Setup:
    net = _convolving()
    return _plain(net, evaluate=_evaluation(net, compiled(lambda x: net(x), fullgraph=True)))


@_setup("compiled: a function that evaluates an average")
def _compiled_average(compiled: Compile) -> Setup:
    net = Attending()
    average = AveragedModel(net)
    call, optimizer = compiled(lambda x: average(x), fullgraph=True), _adam(net)

    def iterate(batch: Batch, _: int) -> Any:
        loss = _step(optimizer, _loss(net, batch))
        average.update_parameters(net)
        return loss

    return _plain(net, optimizer, iterate=iterate, evaluate=_evaluation(average, call))


@_setup("compiled: the model")
def _compiled_model(compiled: Compile) -> Setup:
    net = Attending()
    whole = compiled(net)
    return _plain(whole)


@_setup("compiled: the model, its graph whole")
def _compiled_whole(compiled: Compile) -> Setup:
    whole = compiled(_mlp(0.0), fullgraph=True)
    return _plain(whole)


@_setup("compiled: the model, unknown to us")
def _hidden(compiled: Compile) -> Setup:
    net = Attending()
    return _plain(net, call=compiled(net))


@_setup("compiled: the model in place")
def _in_place(compiled: Compile) -> Setup:
    net = Attending()
    compiled(net, in_place=True)
    return _plain(net)


@_setup("compiled: a block")
def _compiled_block(compiled: Compile) -> Setup:
    net = Attending()
    net.blocks[1] = compiled(net.blocks[1], fullgraph=True)
    return _plain(net)


@_setup("compiled: each block in place")
def _compiled_blocks(compiled: Compile) -> Setup:
    net = Attending()
    for block in net.blocks:
        compiled(block, in_place=True)
    return _plain(net)


@_setup("compiled: a small function inside attention")
def _compiled_inside(compiled: Compile) -> Setup:
    turn = compiled(lambda x: x.roll(1, -1) * 1.5, fullgraph=True)
    net = Attending(Block(around=lambda f, x: turn(f(turn(x)))), Block(by_hand=True))
    return _plain(net)


@_setup("compiled: a function that calls a part of the model")
def _compiled_part(compiled: Compile) -> Setup:
    net = Attending()
    blocks = compiled(lambda x: net.blocks(x), fullgraph=True)
    return _plain(net, call=lambda x: net.head(blocks(net.embed(x.unsqueeze(-1))).mean(1)))


@_setup("compiled: the loss and its backward pass")
def _compiled_loss(compiled: Compile) -> Setup:
    net = _mlp(0.0)
    optimizer, loss_of = _adam(net), compiled(lambda batch: _loss(net, batch), fullgraph=True)
    return _plain(net, optimizer, iterate=lambda batch, _: _step(optimizer, loss_of(batch)))


@_setup("compiled: the whole step")
def _compiled_step(compiled: Compile) -> Setup:
    net = _mlp(0.0)
    optimizer = _adam(net)
    step = compiled(lambda batch: _step(optimizer, _loss(net, batch)))
    return _plain(net, optimizer, iterate=lambda batch, _: step(batch))


@_setup("compiled: the optimiser's step")
def _compiled_optimizer(compiled: Compile) -> Setup:
    net = _mlp(0.0)
    optimizer = _adam(net)
    step = compiled(optimizer.step)

    def iterate(batch: Batch, _: int) -> Any:
        optimizer.zero_grad()
        loss = _loss(net, batch)
        loss.backward()
        step()
        return loss

    return _plain(net, optimizer, iterate=iterate)


class Breaking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = _mlp(0.0)

    def forward(self, x: Tensor) -> Any:
        y = self.body[:2](x)
        torch._dynamo.graph_break()
        return self.body[2:](y)


@_setup("compiled: a function with broken graphs")
def _broken(compiled: Compile) -> Setup:
    net = Breaking()
    return _plain(net, call=compiled(lambda x: net(x) * 1.0))


@_setup("compiled: modules with a call of their own")
def _compiled_calling(compiled: Compile) -> Setup:
    net = Calling(*_mlp(0.0))
    return _plain(net, call=compiled(lambda x: net(x) * 1.0, fullgraph=True))


@_setup("compiled: modules with hooks of their own")
def _compiled_hooks(compiled: Compile) -> Setup:
    net = _mlp(0.0)
    net[0].register_forward_hook(lambda module, args, output: output * 1.5)
    return _plain(net, call=compiled(lambda x: net(x) * 1.0, fullgraph=True))


@_setup("compiled: through autograd's own compiler")
def _ahead_of_time(compiled: Compile) -> Setup:
    net = Attending()
    return _plain(net, call=compiled(lambda x: net(x), backend="aot_eager", fullgraph=True))


@_setup("compiled: checkpoints inside")
def _compiled_checkpoint(compiled: Compile) -> Setup:
    net = Attending(Block(around=lambda f, x: checkpoint(f, x, use_reentrant=False)))  # type: ignore[no-untyped-call]
    return _plain(net, call=compiled(lambda x: net(x)))


@_setup("compiled: batches of two sizes")
def _compiled_sizes(compiled: Compile) -> Setup:
    net = _mlp(0.0)
    call, optimizer = compiled(lambda x: net(x) * 1.0), _adam(net)
    return _plain(
        net,
        optimizer,
        iterate=lambda batch, step: _step(optimizer, _loss(call, (batch[0][: 8 - step % 2], batch[1][: 8 - step % 2]))),
    )
