"""Kinds of models, in a plain loop."""

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tests.monitor import loops
from tests.monitor.setups.setup import Compile, Make, Setup, plain, register
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint


def mlp(dropout: float = 0.2) -> nn.Sequential:
    return loops.model(dropout=dropout)


def shut(x: Tensor) -> Tensor:
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
            tokens = layer(tokens, src_key_padding_mask=shut(x))
        return self.head(tokens.mean(1))


class Stacked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embed = nn.Linear(1, 8)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.1, batch_first=True), 2)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.encoder(self.embed(x.unsqueeze(-1)), src_key_padding_mask=shut(x))[:, 0])


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


def convolving(norm: Callable[[int], nn.Module] = nn.BatchNorm2d) -> nn.Module:
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
        self.body, self.kind = mlp(), kind

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
        self.body = mlp()

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
        self.body, self.reentrant = body or mlp(), reentrant

    def forward(self, x: Tensor) -> Any:
        return checkpoint(self.body, x.requires_grad_(), use_reentrant=self.reentrant)


class Calling(nn.Sequential):
    """With a `__call__` of its own."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **kwargs)


class Noisy(nn.Module):
    """Draws from all three generators."""

    def __init__(self) -> None:
        super().__init__()
        self.body = mlp()

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


def _damped(_module: nn.Module, given: Any, _output: Any) -> Any:
    return (given[0] * 0.9, *given[1:])


def _own_hooks() -> nn.Module:
    net = mlp()
    net[0].register_forward_hook(lambda module, args, output: output * 1.5)
    net[1].register_forward_pre_hook(lambda module, args: (args[0] + 0.1,))
    net[3].register_full_backward_hook(_damped)
    first: Any = next(net.parameters())
    first.register_hook(lambda gradient: gradient.clamp(-1, 1))
    return net


def frozen() -> nn.Module:
    net = Encoder()
    for parameter in net.layers.parameters():
        parameter.requires_grad_(False)
    net.layers[0].train(False)
    return net


def _half_precision() -> nn.Module:
    return mlp().to(torch.bfloat16)


def _parametrised(kind: Callable[[nn.Module], nn.Module]) -> nn.Module:
    net = mlp()
    net[0], net[3] = kind(net[0]), kind(net[3])
    return net


def _lazy() -> nn.Module:
    torch.manual_seed(1)
    net = nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(3))
    net(torch.ones(2, 6))
    return net


_MODELS: dict[str, Callable[[], nn.Module]] = {
    "mlp with dropout": mlp,
    "encoder": Encoder,
    "stack of encoders": Stacked,
    "attention": Attending,
    "convolutions and batch norm": convolving,
    "group norm": lambda: convolving(lambda n: nn.GroupNorm(2, n)),
    "instance norm": lambda: convolving(lambda n: nn.InstanceNorm2d(n, affine=True, track_running_stats=True)),
    "batch norm of all batches": lambda: convolving(lambda n: nn.BatchNorm2d(n, momentum=None)),
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
        Block(),
    ),
    "a call of its own": lambda: Calling(*mlp()),
    "all generators": Noisy,
    "blocks left out by chance": Skipping,
    "complex parameters": Complex,
    "hooks of its own": _own_hooks,
    "frozen encoder": frozen,
    "bfloat16 parameters": _half_precision,
    "float64 parameters": lambda: nn.Sequential(_Cast(), mlp().double()),
    "weight norm": lambda: _parametrised(parametrizations.weight_norm),
    "spectral norm": lambda: _parametrised(parametrizations.spectral_norm),
    "orthogonal": lambda: _parametrised(parametrizations.orthogonal),
    "lazy modules": _lazy,
    "data parallel": lambda: nn.DataParallel(mlp()),
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
            return plain(net, call=lambda x: net(x.to(dtype)))
        return plain(net)

    return setup


for _name, _made in _MODELS.items():
    register(f"model: {_name}")(_of_model(_made))
