"""Tasks over series, tokens, sets and graphs."""

import torch
from benchmarks.faults.space.axes.shapes import Shape
from benchmarks.faults.space.axes.tasks.problem import NUM_VALIDATION, Problem, generator, supervised
from benchmarks.faults.space.recipe import Training
from torch import Tensor

SYMBOLS = 14


def series(training: Training) -> Problem:
    """What is left at the end of a series of which each entry fades."""
    draw, data = generator(training), training.data
    inputs = torch.randn(data.num + NUM_VALIDATION, data.size, 3, generator=draw)
    direction = torch.randn(3, generator=draw)
    ages = torch.arange(data.size - 1, -1, -1)
    values = (torch.tanh(inputs @ (direction / direction.norm())) * 0.85**ages).sum(1, keepdim=True)
    values = (values - values.mean()) / values.std() + 0.1 * data.noise * torch.randn(values.shape, generator=draw)
    return supervised(training, Shape(kind="series", length=data.size, dim=3, outputs=1), inputs, values)


def _text(training: Training, length: int) -> Tensor:
    """A made-up language in which three tokens may follow one."""
    draw, num = generator(training), training.data.num + NUM_VALIDATION
    followers = torch.stack([torch.randperm(SYMBOLS, generator=draw)[:3] for _ in range(SYMBOLS)])
    chances = torch.tensor([0.8, 0.15, 0.05])
    choice = torch.multinomial(chances, num * length, replacement=True, generator=draw).view(num, length)
    tokens = [torch.randint(SYMBOLS, (num,), generator=draw)]
    for i in range(length):
        tokens.append(followers[tokens[-1], choice[:, i]])
    return torch.stack(tokens, 1)


def text(training: Training) -> Problem:
    """The next token, at each place."""
    length = training.data.size
    tokens = _text(training, length)
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].clone()
    if training.data.targets == "not-shifted":
        targets[:-NUM_VALIDATION] = inputs[:-NUM_VALIDATION]
    return supervised(
        training, Shape(kind="tokens", length=length, symbols=SYMBOLS, outputs=SYMBOLS, each=True), inputs, targets
    )


def next_token(training: Training) -> Problem:
    """The token behind the last three."""
    tokens = _text(training, 3)
    return supervised(training, Shape(kind="tokens", length=3, symbols=SYMBOLS, outputs=SYMBOLS),
                      tokens[:, :-1].contiguous(), tokens[:, -1].clone())  # fmt: skip


def bags(training: Training) -> Problem:
    """The largest projection of a set's elements."""
    draw, data = generator(training), training.data
    inputs = torch.randn(data.num + NUM_VALIDATION, data.size, 4, generator=draw)
    direction = torch.randn(4, generator=draw)
    values = torch.tanh(inputs @ direction).square().mean(1, keepdim=True)
    values = (values - values.mean()) / values.std() + 0.05 * data.noise * torch.randn(values.shape, generator=draw)
    return supervised(training, Shape(kind="set", length=data.size, dim=4, outputs=1), inputs, values)


def graphs(training: Training) -> Problem:
    """How much neighbours agree, over a graph's edges."""
    draw, data = generator(training), training.data
    num, nodes = data.num + NUM_VALIDATION, data.size
    features = torch.randn(num, nodes, 4, generator=draw)
    edges = (torch.rand(num, nodes, nodes, generator=draw) < 0.3).float()
    edges = torch.maximum(edges, edges.transpose(1, 2))
    means = edges @ features / edges.sum(-1, keepdim=True).clamp(min=1)
    values = torch.tanh(means @ torch.randn(4, generator=draw) * 2).mean(1, keepdim=True) + features[..., 0].mean(
        1, keepdim=True
    )
    values = (values - values.mean()) / values.std() + 0.05 * data.noise * torch.randn(values.shape, generator=draw)
    shape = Shape(kind="graph", length=nodes, dim=4, outputs=1)
    return supervised(training, shape, torch.cat([features, edges], -1), values)
