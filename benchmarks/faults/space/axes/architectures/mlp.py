"""A multilayer perceptron over vectors."""

from benchmarks.faults.space.axes.architectures.parts import dense
from benchmarks.faults.space.axes.shapes import Shape
from benchmarks.faults.space.recipe import Model
from torch import nn

TAKES = frozenset({"vector"})


def build(model: Model, shape: Shape) -> nn.Module:
    """`depth` hidden layers."""
    return dense(model, [shape.dim, *[model.width] * model.depth, shape.outputs])
