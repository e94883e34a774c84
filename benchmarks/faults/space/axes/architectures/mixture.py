"""A mixture of experts over vectors."""

from benchmarks.faults.space.axes.architectures.parts import Experts, activation
from benchmarks.faults.space.axes.shapes import Shape
from benchmarks.faults.space.recipe import Model
from torch import nn

TAKES = frozenset({"vector"})


def build(model: Model, shape: Shape) -> nn.Module:
    """A stem and four experts that a gate weighs."""
    stem = nn.Linear(shape.dim, model.width)
    return nn.Sequential(stem, activation(model), Experts(model, 4, model.width, shape.outputs))
