"""The small models that the trainings use."""

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional


def mlp(
    sizes: Sequence[int],
    activation: Callable[[], nn.Module] = nn.ReLU,
    *,
    dropout: float = 0.0,
    norm: bool = False,
) -> nn.Sequential:
    """Linear layers of these sizes with an activation (and LayerNorm before, dropout behind it, if any) between."""
    layers: list[nn.Module] = []
    for i, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        layers.append(nn.Linear(inputs, outputs))
        if i < len(sizes) - 2:
            if norm:
                layers.append(nn.LayerNorm(outputs))
            layers.append(activation())
            if dropout:
                layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers)


def linears(model: nn.Module) -> list[nn.Linear]:
    """The linear layers of a model, in its order."""
    return [module for module in model.modules() if isinstance(module, nn.Linear)]


def cnn(channels: int, classes: int = 4, *, norm: bool = False, dropout: float = 0.0) -> nn.Sequential:
    """Two convolutions, pooling, and a linear classifier, for images of one channel."""
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1, bias=not norm),
        nn.BatchNorm2d(channels) if norm else nn.Identity(),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(channels, 2 * channels, 3, padding=1, bias=not norm),
        nn.BatchNorm2d(2 * channels) if norm else nn.Identity(),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(3),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(18 * channels, classes),
    )


class Block(nn.Module):
    """x + f(x), f two layers; normalised before f where `norm`."""

    def __init__(self, dim: int, *, norm: bool = True, activation: Callable[[], nn.Module] = nn.ReLU) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim) if norm else nn.Identity()
        self.up = nn.Linear(dim, dim)
        self.act = activation()
        self.down = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.act(self.up(self.norm(x))))


class ResidualMlp(nn.Module):
    """A stem, blocks with skips, and a head."""

    def __init__(self, inputs: int, dim: int, depth: int, outputs: int, *, norm: bool = True) -> None:
        super().__init__()
        self.stem = nn.Linear(inputs, dim)
        self.blocks = nn.ModuleList(Block(dim, norm=norm) for _ in range(depth))
        self.head = nn.Linear(dim, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class ResidualCnn(nn.Module):
    """A small ResNet with batch norm, for images of one channel."""

    def __init__(self, channels: int, depth: int, classes: int = 4) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, channels, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(channels, channels, 3, padding=1, bias=False),
                nn.BatchNorm2d(channels),
                nn.ReLU(),
                nn.Conv2d(channels, channels, 3, padding=1, bias=False),
                nn.BatchNorm2d(channels),
            )
            for _ in range(depth)
        )
        self.head = nn.Linear(channels * 4, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = torch.relu(x + block(x))
        return self.head(functional.adaptive_avg_pool2d(x, 2).flatten(1))


class Recurrent(nn.Module):
    """A recurrent layer over a sequence of vectors (or of symbols, embedded), and a head on its last state."""

    def __init__(self, kind: type[nn.RNNBase], inputs: int, hidden: int, outputs: int, *, symbols: int = 0) -> None:
        super().__init__()
        self.embed = nn.Embedding(symbols, inputs) if symbols else nn.Identity()
        self.rnn = kind(inputs, hidden, batch_first=True)
        self.head = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.rnn(self.embed(x))
        return self.head(states[:, -1])


class Attention(nn.Module):
    """Causal self-attention; `scale` multiplies the usual 1/√d, `qk_norm` normalises queries and keys."""

    def __init__(self, dim: int, heads: int, *, scale: float, qk_norm: bool) -> None:
        super().__init__()
        self.heads, self.scale = heads, scale / math.sqrt(dim // heads)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.q_norm = nn.LayerNorm(dim // heads) if qk_norm else nn.Identity()
        self.k_norm = nn.LayerNorm(dim // heads) if qk_norm else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        batch, length, dim = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(
            self.q_norm(q), self.k_norm(k), v, is_causal=True, scale=self.scale
        )
        return self.out(mixed.transpose(1, 2).reshape(batch, length, dim))


class Layer(nn.Module):
    """Attention and a two-layer network with skips, normalised before them (`pre_norm`) or after."""

    def __init__(self, dim: int, heads: int, *, pre_norm: bool, scale: float, qk_norm: bool) -> None:
        super().__init__()
        self.pre_norm = pre_norm
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim, heads, scale=scale, qk_norm=qk_norm)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        if self.pre_norm:
            x = x + self.attn(self.norm1(x))
            return x + self.mlp(self.norm2(x))
        x = self.norm1(x + self.attn(x))
        return self.norm2(x + self.mlp(x))


class Transformer(nn.Module):
    """A decoder-only transformer over characters."""

    def __init__(
        self,
        *,
        vocabulary: int,
        context: int,
        dim: int = 32,
        heads: int = 2,
        depth: int = 2,
        pre_norm: bool = True,
        scale: float = 1.0,
        qk_norm: bool = False,
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, dim)
        self.place = nn.Embedding(context, dim)
        nn.init.normal_(self.embed.weight, std=0.1)
        nn.init.normal_(self.place.weight, std=0.1)
        self.layers = nn.ModuleList(
            Layer(dim, heads, pre_norm=pre_norm, scale=scale, qk_norm=qk_norm) for _ in range(depth)
        )
        self.norm = nn.LayerNorm(dim) if pre_norm else nn.Identity()
        self.head = nn.Linear(dim, vocabulary)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids) + self.place(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))
