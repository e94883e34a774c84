"""Tasks over plain vectors: classes, numbers, reconstruction, noise to be removed, ratings of ids."""

import math

import torch
from benchmarks.faults.space.axes.shapes import Shape
from benchmarks.faults.space.axes.tasks.problem import NUM_VALIDATION, Problem, generator, supervised
from benchmarks.faults.space.recipe import Training
from torch import Tensor


def clouds(training: Training, draw: torch.Generator, *, turned: float = 0.0) -> tuple[Tensor, Tensor]:
    """Classes made of two Gaussian clouds each."""
    data = training.data
    num, dim = data.num + NUM_VALIDATION, data.size
    places = 1.5 * torch.randn(2 * data.classes, dim, generator=draw)
    places = places + turned * torch.randn(places.shape, generator=draw)
    cloud = torch.randint(len(places), (num,), generator=draw)
    points = places[cloud] + 0.8 * data.noise * torch.randn(num, dim, generator=draw)
    return points / points.std(), cloud % data.classes


def tabular(training: Training) -> Problem:
    """Which class a row belongs to."""
    points, labels = clouds(training, generator(training))
    return supervised(training, Shape(kind="vector", dim=training.data.size, outputs=training.data.classes),
                      points, labels)  # fmt: skip


def regression(training: Training) -> Problem:
    """A smooth function of a row, of mean 0 and variance 1."""
    draw, data = generator(training), training.data
    points = torch.randn(data.num + NUM_VALIDATION, data.size, generator=draw)
    first = torch.randn(data.size, 6, generator=draw) / math.sqrt(data.size)
    values = torch.tanh(1.5 * points @ first) @ torch.randn(6, 1, generator=draw)
    values = (values - values.mean()) / values.std()
    values = values + 0.1 * data.noise * torch.randn(values.shape, generator=draw)
    return supervised(training, Shape(kind="vector", dim=data.size, outputs=1), points, values)


def autoencoding(training: Training) -> Problem:
    """Rows that lie near a curved surface of four dimensions, to be given back."""
    draw, data = generator(training), training.data
    hidden = torch.randn(data.num + NUM_VALIDATION, 4, generator=draw)
    points = torch.tanh(hidden @ torch.randn(4, data.size, generator=draw) * 0.7)
    points = points / points.std() + 0.05 * data.noise * torch.randn(points.shape, generator=draw)
    return supervised(training, Shape(kind="vector", dim=data.size, outputs=data.size), points, points.clone())


def diffusion(training: Training) -> Problem:
    """The noise in a point of a ring of clouds, given the point and how noisy it is."""
    draw, data = generator(training), training.data
    num = data.num + NUM_VALIDATION
    angle = 2 * math.pi * torch.randint(5, (num,), generator=draw) / 5
    clean = torch.stack([angle.cos(), angle.sin()], 1) * 2 + 0.1 * torch.randn(num, 2, generator=draw)
    time = 0.3 + 0.7 * torch.rand(num, 1, generator=draw)
    noise = torch.randn(num, 2, generator=draw)
    return supervised(training, Shape(kind="vector", dim=3, outputs=2),
                      torch.cat([clean * (1 - time) + time * noise, time], 1), noise)  # fmt: skip


def ratings(training: Training) -> Problem:
    """What a user gives an item, both known by their ids only."""
    draw, data = generator(training), training.data
    ids = torch.randint(30, (data.num + NUM_VALIDATION, 2), generator=draw)
    users, items = torch.randn(30, 2, generator=draw), torch.randn(30, 2, generator=draw)
    values = (users[ids[:, 0]] * items[ids[:, 1]]).sum(1, keepdim=True) + 0.5 * users[ids[:, 0], :1]
    values = (values - values.mean()) / values.std() + 0.1 * data.noise * torch.randn(values.shape, generator=draw)
    return supervised(training, Shape(kind="ids", length=2, symbols=30, outputs=1), ids, values)


def fine_tuning(training: Training) -> Problem:
    """Classes of clouds near those that the model was trained on before."""
    draw = generator(training)
    places = draw.get_state()
    before = clouds(training, draw)
    draw.set_state(places)
    points, labels = clouds(training, draw, turned=0.7)
    shape = Shape(kind="vector", dim=training.data.size, outputs=training.data.classes)
    return supervised(training, shape, points, labels, pretrain=before)


def continual(training: Training) -> Problem:
    """The same classes three times, each time seen through another rotation."""
    points, labels = clouds(training, generator(training))
    draw = torch.Generator().manual_seed(training.randomness + 7)
    parts = []
    for part in points[:-NUM_VALIDATION].chunk(3):
        turn, _ = torch.linalg.qr(torch.eye(points.shape[1]) + 0.3 * torch.randn(2 * [points.shape[1]], generator=draw))
        parts.append(part @ turn)
    parts.append(points[-NUM_VALIDATION:] @ turn)
    shape = Shape(kind="vector", dim=training.data.size, outputs=training.data.classes)
    return supervised(training, shape, torch.cat(parts), labels, phases=3)
