"""Small models and tasks of the trainings in `loops`, `data`, `precision`, `systems` and `ranks`.

Tasks are made up from random numbers, are learnt well within a few hundred steps, and are not learnt by accident.
"""

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from benchmarks.faults.scenario import Session
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

Batch = tuple[Tensor, Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]


def begin(session: Session, salt: int) -> random.Random:
    """Seed torch; what comes back picks sizes and rates, equal for a training and its twin.

    Args:
        salt: Another one for each training, so that those of one seed have nothing in common.
    """
    torch.manual_seed(1_000 * session.seed + salt)
    return random.Random(1_000 * session.seed + salt)


def mildly(pick: random.Random, value: float) -> float:
    """About that value."""
    return value * pick.uniform(0.8, 1.25)


@dataclass(frozen=True)
class Task:
    """Examples to learn from, and others to be judged by."""

    inputs: Tensor
    targets: Tensor
    val_inputs: Tensor
    val_targets: Tensor

    def loader(self, batch_size: int, *, shuffle: bool = True, drop_last: bool = True) -> DataLoader[Batch]:
        """The examples as a user would load them."""
        pairs: TensorDataset = TensorDataset(self.inputs, self.targets)
        return DataLoader(pairs, batch_size=batch_size, shuffle=shuffle, drop_last=drop_last)  # type: ignore[arg-type]

    def batches(self, batch_size: int, num_steps: int) -> Iterator[Batch]:
        """A stream of batches, drawn at random."""
        for _ in range(num_steps):
            rows = torch.randint(len(self.inputs), (batch_size,))
            yield self.inputs[rows], self.targets[rows]


def _split(inputs: Tensor, targets: Tensor, num_train: int) -> Task:
    return Task(inputs[:num_train], targets[:num_train], inputs[num_train:], targets[num_train:])


def clusters(num: int = 4096, *, dims: int = 16, classes: int = 6, apart: float = 1.0) -> Task:
    """Classes of three Gaussian clouds each: points [num, dims], labels [num]."""
    centres = apart * torch.randn(classes * 3, dims)
    cloud = torch.randint(classes * 3, (num + 512,))
    points = centres[cloud] + torch.randn(num + 512, dims)
    return _split((points - points.mean(0)) / points.std(0), cloud % classes, num)


def pictures(num: int = 2048, *, size: int = 12, classes: int = 5, noise: float = 0.8) -> Task:
    """A smooth pattern for each class, shifted by up to two pixels: pictures [num, 1, size, size], labels [num]."""
    coarse = torch.randn(classes, 1, 4, 4)
    patterns = functional.interpolate(coarse, size=(size, size), mode="bilinear")
    labels = torch.randint(classes, (num + 384,))
    shifts = torch.randint(-2, 3, (num + 384, 2)).tolist()
    shown = torch.stack(
        [patterns[label].roll((down, right), (1, 2)) for label, (down, right) in zip(labels, shifts, strict=True)]
    )
    return _split(shown + noise * torch.randn_like(shown), labels, num)


def waves(num: int = 4096, *, dims: int = 8, noise: float = 0.1) -> Task:
    """A smooth function of several variables, of mean 0 and deviation 1: points [num, dims], values [num, 1]."""
    points = torch.randn(num + 512, dims)
    first, second = torch.randn(dims, 3) / dims**0.5, torch.randn(dims, 3) / dims**0.5
    values = ((points @ first * 1.5).sin() + (points @ second).tanh() * (points @ first)).sum(1, keepdim=True)
    values = (values - values.mean()) / values.std()
    return _split(points, values + noise * torch.randn_like(values), num)


def chains(num: int = 2048, *, vocabulary: int = 20, length: int = 20) -> Task:
    """Text of a made-up language in which three tokens may follow one: tokens and their successors [num, length]."""
    successors = torch.stack([torch.randperm(vocabulary)[:3] for _ in range(vocabulary)])
    choice = torch.multinomial(torch.tensor([0.75, 0.2, 0.05]), (num + 256) * length, replacement=True)
    choice = choice.view(num + 256, length)
    text = [torch.randint(vocabulary, (num + 256,))]
    for i in range(length):
        text.append(successors[text[-1], choice[:, i]])
    tokens = torch.stack(text, 1)
    return _split(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), num)


def mlp(*sizes: int, dropout: float = 0.0, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """Linear layers of these widths with activations between them."""
    layers: list[nn.Module] = []
    for i, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
        layers.append(nn.Linear(fan_in, fan_out))
        if i < len(sizes) - 2:
            layers.append(activation())
            if dropout:
                layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers)


class ConvNet(nn.Module):
    """Two or more convolutions, mean over the picture, a linear head."""

    def __init__(self, classes: int, *, width: int = 12, depth: int = 2, norm: type[nn.Module] | None = None) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for i in range(depth):
            stride = 2 if i in (0, 1) else 1
            layers.append(nn.Conv2d(1 if i == 0 else width, width, 3, stride=stride, padding=1))
            if norm is not None:
                layers.append(norm(width))
            layers.append(nn.ReLU())
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(width * 9, classes)

    def forward(self, pictures: Tensor) -> Tensor:
        out: Tensor = self.head(self.features(pictures).flatten(1))
        return out


class Recurrent(nn.Module):
    """Embedding, GRU, linear head at every position."""

    def __init__(self, vocabulary: int, *, width: int = 32, embedding: int = 16) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.gru = nn.GRU(embedding, width, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.head(self.gru(self.embedding(tokens))[0])
        return out


class Block(nn.Module):
    """Causal self-attention and a two-layer network, each with its residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = mlp(width, 2 * width, width, activation=nn.GELU)
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


class Transformer(nn.Module):
    """A small language model."""

    def __init__(self, vocabulary: int, length: int, *, width: int = 32, depth: int = 2, heads: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(0.02 * torch.randn(length, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens) + self.position[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.head(self.norm(x))
        return out


def token_loss(logits: Tensor, tokens: Tensor) -> Tensor:
    """Cross-entropy over all positions."""
    return functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())


def validate(model: nn.Module, task: Task, loss: Loss = functional.cross_entropy) -> float:
    """The loss on the other examples, in evaluation mode; the model is in training mode afterwards."""
    model.eval()
    with torch.no_grad():
        found = loss(model(task.val_inputs), task.val_targets).item()
    model.train()
    return found


def accuracy(model: nn.Module, task: Task) -> float:
    """Share of right labels among the other examples; the model is in training mode afterwards."""
    model.eval()
    with torch.no_grad():
        found = float((model(task.val_inputs).argmax(-1) == task.val_targets).float().mean())
    model.train()
    return found
