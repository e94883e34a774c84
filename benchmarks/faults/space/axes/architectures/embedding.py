"""Tables of embeddings: of ids whose vectors are joined, or of the last tokens of a text."""

import torch
from benchmarks.faults.space.axes.architectures.parts import dense
from benchmarks.faults.space.axes.shapes import Shape
from benchmarks.faults.space.recipe import Model
from torch import Tensor, nn

TAKES = frozenset({"ids", "tokens"})


class Tables(nn.Module):
    def __init__(self, model: Model, shape: Shape) -> None:
        super().__init__()
        self.length = shape.length
        self.tables = nn.ModuleList(nn.Embedding(shape.symbols, model.width // 4) for _ in range(shape.length))
        inputs = shape.length * (model.width // 4)
        self.net = dense(model, [inputs, *[model.width] * model.depth, shape.outputs])

    def forward(self, ids: Tensor) -> Tensor:
        return self.net(torch.cat([table(ids[:, i]) for i, table in enumerate(self.tables)], -1))


def build(model: Model, shape: Shape) -> nn.Module:
    """A table for each place, and an MLP over what they hold."""
    return Tables(model, shape)
