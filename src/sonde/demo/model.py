"""A small character transformer: pre-norm blocks, causal attention, learned positions."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes of the model. The default has 0.6 million parameters."""

    vocabulary: int
    context: int = 64
    width: int = 128
    depth: int = 3
    heads: int = 4


class Transformer(nn.Module):
    """Logits of next characters, `[batch, time] -> [batch, time, vocabulary]`, `time` up to `context`."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.characters = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(shape.context, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.depth))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.characters(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))  # type: ignore[no-any-return]  # modules are called through `Any`


class Block(nn.Module):
    """Attention and an MLP, each behind a norm and beside a residual connection."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(shape.width)
        self.attention = Attention(shape)
        self.mlp_norm = nn.LayerNorm(shape.width)
        self.mlp = nn.Sequential(
            nn.Linear(shape.width, 4 * shape.width), nn.GELU(), nn.Linear(4 * shape.width, shape.width)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        x = x + self.mlp(self.mlp_norm(x))
        return x


class Attention(nn.Module):
    """Causal self-attention of several heads."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.qkv = nn.Linear(shape.width, 3 * shape.width)
        self.out = nn.Linear(shape.width, shape.width)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        qkv = self.qkv(x).view(batch, time, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, time, width))  # type: ignore[no-any-return]


def initialise(model: Transformer, generator: torch.Generator) -> None:
    """Draw all weights from `generator`, with deviation 0.02, or 0.02 / √(2 depth) where a block ends.

    References:
        Radford et al., Language Models are Unsupervised Multitask Learners, 2019, section 2.3.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02, generator=generator)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
    for block in model.blocks:
        assert isinstance(block, Block)
        for layer in (block.attention.out, block.mlp[-1]):
            assert isinstance(layer, nn.Linear)
            nn.init.normal_(layer.weight, std=0.02 / math.sqrt(2 * model.shape.depth), generator=generator)
