"""Convolutions with skips and batch normalisation."""

from benchmarks.faults.space.axes.shapes import Shape
from benchmarks.faults.space.recipe import Model
from torch import Tensor, nn

TAKES = frozenset({"image"})


class ResNet(nn.Module):
    def __init__(self, model: Model, shape: Shape) -> None:
        super().__init__()
        channels = model.width // 4
        self.stem = nn.Conv2d(1, channels, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(channels, channels, 3, padding=1, bias=False),
                nn.BatchNorm2d(channels, momentum=model.norm_momentum),
                nn.ReLU(),
                nn.Conv2d(channels, channels, 3, padding=1, bias=False),
                nn.BatchNorm2d(channels, momentum=model.norm_momentum),
            )
            for _ in range(model.depth)
        )
        self.drop = nn.Dropout(model.dropout)
        self.head = nn.Linear(channels * 4, shape.outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = (x + block(x)).relu()
        return self.head(self.drop(nn.functional.adaptive_avg_pool2d(x, 2).flatten(1)))


def build(model: Model, shape: Shape) -> nn.Module:
    """A stem, `depth` blocks and a head."""
    return ResNet(model, shape)
