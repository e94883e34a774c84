"""Fully connected blocks with skips."""

from benchmarks.faults.space.axes.architectures.parts import activation, norm
from benchmarks.faults.space.axes.shapes import Shape
from benchmarks.faults.space.recipe import Model
from torch import Tensor, nn

TAKES = frozenset({"vector"})


class Residual(nn.Module):
    def __init__(self, model: Model, shape: Shape) -> None:
        super().__init__()
        width = model.width
        self.stem = nn.Linear(shape.dim, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(*norm(model, width), nn.Linear(width, width), activation(model), nn.Linear(width, width))
            for _ in range(model.depth)
        )
        self.drop = nn.Dropout(model.dropout)
        self.head = nn.Linear(width, shape.outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = x + self.drop(block(x))
        return self.head(x)


def build(model: Model, shape: Shape) -> nn.Module:
    """A stem, `depth` blocks and a head."""
    return Residual(model, shape)
