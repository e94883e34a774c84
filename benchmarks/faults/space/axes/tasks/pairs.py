"""Tasks over pairs: which one is better, and which two are views of the same thing."""

import math

import torch
from benchmarks.faults.space.axes.losses import info_nce
from benchmarks.faults.space.axes.shapes import Shape
from benchmarks.faults.space.axes.tasks.pictures import SIDE
from benchmarks.faults.space.axes.tasks.problem import NUM_VALIDATION, Problem, generator, supervised
from benchmarks.faults.space.recipe import Training
from torch import nn
from torch.nn import functional


def ranking(training: Training) -> Problem:
    """Which of two rows has the higher hidden worth."""
    draw, data = generator(training), training.data
    rows = torch.randn(data.num + NUM_VALIDATION, 2, data.size, generator=draw)
    worth = torch.tanh(rows @ torch.randn(data.size, 4, generator=draw)).sum(-1)
    worth = worth + 0.1 * data.noise * torch.randn(worth.shape, generator=draw)
    better = torch.where(worth[:, 0] > worth[:, 1], 1.0, -1.0)
    return supervised(training, Shape(kind="pair", dim=data.size, outputs=1), rows, better)


def _views(training: Training, shape: Shape, pairs: torch.Tensor) -> Problem:
    num, batch = len(pairs) - NUM_VALIDATION, 32

    def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor, reduction: str) -> torch.Tensor:
        return info_nce(model(x), y, reduction)

    def score(model: nn.Module) -> float:
        held = pairs[num:].split(batch)
        return sum(float(info_nce(model(part), part, "mean")) for part in held) / len(held) / math.log(batch)

    nothing = torch.zeros(len(pairs), dtype=torch.int64)
    return Problem(shape=shape, inputs=pairs[:num], targets=nothing[:num], val_inputs=pairs[num : num + batch],
                   val_targets=nothing[:batch], trivial=math.log(batch), loss=loss, score=score)  # fmt: skip


def contrastive(training: Training) -> Problem:
    """Two noisy views of the same point, among those of others."""
    draw, data = generator(training), training.data
    points = torch.tanh(torch.randn(data.num + NUM_VALIDATION, 1, 5, generator=draw)
                        @ torch.randn(5, data.size, generator=draw))  # fmt: skip
    views = points + 0.35 * data.noise * torch.randn(len(points), 2, data.size, generator=draw)
    return _views(training, Shape(kind="pair", dim=data.size, outputs=8), views)


def image_contrastive(training: Training) -> Problem:
    """Two noisy views of the same image."""
    draw, data = generator(training), training.data
    coarse = torch.randn(data.num + NUM_VALIDATION, 1, 3, 3, generator=draw)
    shown = functional.interpolate(coarse, size=(SIDE, SIDE), mode="bilinear")[:, None]
    views = shown + 0.5 * data.noise * torch.randn(len(shown), 2, 1, SIDE, SIDE, generator=draw)
    return _views(training, Shape(kind="image-pair", length=SIDE, outputs=8), views)
