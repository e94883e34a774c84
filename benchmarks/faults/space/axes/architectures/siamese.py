"""One network over both members of a pair."""

from benchmarks.faults.space.axes.architectures import cnn, mlp
from benchmarks.faults.space.axes.shapes import Shape
from benchmarks.faults.space.recipe import Model
from torch import Tensor, nn

TAKES = frozenset({"pair", "image-pair"})


class Siamese(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, pairs: Tensor) -> Tensor:
        found = self.inner(pairs.flatten(0, 1))
        return found.view(len(pairs), 2, -1).squeeze(-1)


def build(model: Model, shape: Shape) -> nn.Module:
    """An MLP over vectors or convolutions over images, twice."""
    if shape.kind == "image-pair":
        return Siamese(cnn.build(model, Shape(kind="image", length=shape.length, outputs=shape.outputs)))
    return Siamese(mlp.build(model, Shape(kind="vector", dim=shape.dim, outputs=shape.outputs)))
