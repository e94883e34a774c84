"""Transformers: encoders over series, tokens, sets and image patches, and causal decoders over tokens."""

import torch
from benchmarks.faults.space.axes.architectures.parts import Block
from benchmarks.faults.space.axes.shapes import Shape
from benchmarks.faults.space.recipe import Model
from torch import Tensor, nn

TAKES_ENCODER = frozenset({"series", "tokens", "set", "image"})
TAKES_DECODER = frozenset({"tokens"})
PATCH = 4


class Transformer(nn.Module):
    def __init__(self, model: Model, shape: Shape, *, causal: bool, experts: int = 0) -> None:
        super().__init__()
        self.image, self.each = shape.kind == "image", shape.each
        length = (shape.length // PATCH) ** 2 if self.image else shape.length
        dim = PATCH**2 if self.image else shape.dim
        self.embed = nn.Embedding(shape.symbols, model.width) if shape.symbols else nn.Linear(dim, model.width)
        self.place = None if shape.kind == "set" else nn.Parameter(0.1 * torch.randn(length, model.width))
        self.blocks = nn.ModuleList(Block(model, causal=causal, experts=experts) for _ in range(model.depth))
        self.norm = nn.LayerNorm(model.width)
        self.head = nn.Linear(model.width, shape.outputs)

    def forward(self, x: Tensor) -> Tensor:
        if self.image:
            x = nn.functional.unfold(x, PATCH, stride=PATCH).transpose(1, 2)
        x = self.embed(x)
        if self.place is not None:
            x = x + self.place[: x.shape[1]]
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return self.head(x if self.each else x.mean(1))


def build_encoder(model: Model, shape: Shape) -> nn.Module:
    """All see all; the mean of the last layer answers."""
    return Transformer(model, shape, causal=False)


def build_decoder(model: Model, shape: Shape) -> nn.Module:
    """Each sees what came before."""
    return Transformer(model, shape, causal=True)


def build_mixture(model: Model, shape: Shape) -> nn.Module:
    """The same with experts in place of the feed-forward part."""
    return Transformer(model, shape, causal=True, experts=3)
