"""What several architectures are made of."""

import itertools
from collections.abc import Sequence

import torch
from benchmarks.faults.space.recipe import Model
from torch import Tensor, nn

ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh, "silu": nn.SiLU, "sigmoid": nn.Sigmoid}


def activation(model: Model) -> nn.Module:
    """The one that the recipe asks for."""
    return ACTIVATIONS[model.activation]()


def norm(model: Model, width: int) -> list[nn.Module]:
    """Of vectors, as the recipe asks for; an empty list for none."""
    if model.norm == "layer":
        return [nn.LayerNorm(width)]
    return [nn.BatchNorm1d(width, momentum=model.norm_momentum)] if model.norm == "batch" else []


def dense(model: Model, sizes: Sequence[int]) -> nn.Sequential:
    """Linear layers of these sizes with all that the recipe wants between them."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in itertools.pairwise(sizes[:-1]):
        layers += [nn.Linear(fan_in, fan_out), *norm(model, fan_out), activation(model)]
        if model.dropout:
            layers.append(nn.Dropout(model.dropout))
    return nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]))


class Attention(nn.Module):
    """Self-attention over a sequence."""

    def __init__(self, model: Model, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.scale = model.attention_scale / (model.width // heads) ** 0.5
        self.qkv = nn.Linear(model.width, 3 * model.width)
        self.out = nn.Linear(model.width, model.width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal, scale=self.scale)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Experts(nn.Module):
    """Small networks among which a gate chooses softly."""

    def __init__(self, model: Model, num: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.gate = nn.Linear(inputs, num)
        self.experts = nn.ModuleList(dense(model, [inputs, model.width, outputs]) for _ in range(num))

    def forward(self, x: Tensor) -> Tensor:
        shares = torch.softmax(self.gate(x), -1)
        return sum(shares[..., i : i + 1] * expert(x) for i, expert in enumerate(self.experts))  # type: ignore[return-value]


class Block(nn.Module):
    """Attention and a feed-forward part, each with a skip, normalised before."""

    def __init__(self, model: Model, *, causal: bool, experts: int = 0) -> None:
        super().__init__()
        width = model.width
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = Attention(model, 2, causal=causal)
        self.drop = nn.Dropout(model.dropout)
        self.mlp = (
            Experts(model, experts, width, width)
            if experts
            else nn.Sequential(nn.Linear(width, 2 * width), activation(model), nn.Linear(2 * width, width))
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop(self.attn(self.norm1(x)))
        return x + self.drop(self.mlp(self.norm2(x)))
