"""Convolutions, with batch normalisation or without, to one answer or to an image again."""

from benchmarks.faults.space.axes.architectures.parts import activation
from benchmarks.faults.space.axes.shapes import Shape
from benchmarks.faults.space.recipe import Model
from torch import nn

TAKES = frozenset({"image"})


def build(model: Model, shape: Shape) -> nn.Module:
    """`depth` convolutions, pooled after the first; a linear head, or one that brings the image back."""
    layers: list[nn.Module] = []
    channels = model.width // 4
    for i in range(model.depth):
        layers.append(nn.Conv2d(channels if i else 1, channels, 3, padding=1))
        if model.norm == "batch":
            layers.append(nn.BatchNorm2d(channels, momentum=model.norm_momentum))
        layers.append(activation(model))
        if i == 0:
            layers.append(nn.MaxPool2d(2))
    if shape.each:
        layers.append(nn.Conv2d(channels, 4, 1))
        return nn.Sequential(*layers, activation(model), nn.ConvTranspose2d(4, 1, 2, stride=2))
    head = nn.Linear(channels * 9, shape.outputs)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Dropout(model.dropout), head)
