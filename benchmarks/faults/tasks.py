"""Small synthetic tasks with something to learn, drawn anew for each seed, and the loop most trainings share.

Every task has a held-out validation set of the same distribution.
"""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from benchmarks.faults.scenario import Session
from torch import Tensor, nn
from torch.nn import functional

Criterion = Callable[[Tensor, Tensor], Tensor]


def begin(session: Session) -> random.Random:
    """Seed everything, and return what draws this seed's sizes and settings."""
    torch.set_num_threads(1)
    torch.manual_seed(session.seed)
    return random.Random(session.seed)


@dataclass(frozen=True)
class Batches:
    """Shuffled batches, reshuffled at each pass; the last one may be smaller."""

    inputs: Tensor
    targets: Tensor
    size: int
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "generator", torch.Generator().manual_seed(self.seed))

    def __len__(self) -> int:
        return math.ceil(len(self.inputs) / self.size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(self.inputs), generator=self.generator)  # type: ignore[attr-defined]
        for rows in order.split(self.size):
            yield self.inputs[rows], self.targets[rows]


@dataclass(frozen=True)
class Task:
    """Examples to learn from, and others to be judged on."""

    inputs: Tensor
    targets: Tensor
    val_inputs: Tensor
    val_targets: Tensor
    seed: int = 0

    def batches(self, size: int) -> Batches:
        return Batches(self.inputs, self.targets, size, self.seed)

    def dataset(self) -> torch.utils.data.TensorDataset:
        return torch.utils.data.TensorDataset(self.inputs, self.targets)

    def fewer(self, num: int) -> "Task":
        return replace(self, inputs=self.inputs[:num], targets=self.targets[:num])


def _split(inputs: Tensor, targets: Tensor, num: int, seed: int) -> Task:
    return Task(inputs[:num], targets[:num], inputs[num:], targets[num:], seed)


def regression(seed: int, *, num: int, dim: int, noise: float = 0.1, hidden: int = 16) -> Task:
    """Targets of a random two-layer teacher, of mean 0 and variance 1, with noise."""
    draw = torch.Generator().manual_seed(1000 + seed)
    inputs = torch.randn(num + 512, dim, generator=draw)
    first = torch.randn(dim, hidden, generator=draw) * 1.5 / math.sqrt(dim)
    second = torch.randn(hidden, 1, generator=draw)
    targets = torch.tanh(inputs @ first) @ second
    targets = (targets - targets.mean()) / targets.std() + noise * torch.randn(targets.shape, generator=draw)
    return _split(inputs, targets, num, seed)


def mixture(seed: int, *, num: int, dim: int, classes: int, spread: float = 0.8, centres: int = 3) -> Task:
    """Classes made of several Gaussian clouds each, so that no line separates them; inputs of variance about 1."""
    draw = torch.Generator().manual_seed(2000 + seed)
    places = torch.randn(classes * centres, dim, generator=draw)
    cloud = torch.randint(classes * centres, (num + 512,), generator=draw)
    inputs = places[cloud] + spread * torch.randn(num + 512, dim, generator=draw)
    return _split(inputs / inputs.std(), cloud % classes, num, seed)


def shapes(seed: int, *, num: int, size: int = 12, noise: float = 0.4) -> Task:
    """Noisy images of a square, a disc, a cross or a bar, each somewhere, of some size and sign."""
    draw = torch.Generator().manual_seed(3000 + seed)
    total = num + 384
    labels = torch.randint(4, (total,), generator=draw)
    radius = 2 + torch.rand(total, 1, 1, generator=draw) * (size / 4 - 1.5)
    x0, y0 = (size / 2 + (torch.rand(2, total, 1, 1, generator=draw) - 0.5) * size * 0.35).unbind()
    sign = torch.where(torch.rand(total, 1, 1, generator=draw) < 0.5, -1.0, 1.0)
    grid = torch.arange(size, dtype=torch.float32)
    dx, dy = (grid[None, None, :] - x0).abs(), (grid[None, :, None] - y0).abs()
    kinds = [
        torch.maximum(dx, dy) <= radius,
        (dx.square() + dy.square() <= (radius * 0.9).square()) & (dx + dy > radius * 0.4),
        (torch.minimum(dx, dy) <= 0.8) & (torch.maximum(dx, dy) <= radius + 1),
        (dy <= 1) & (dx <= radius + 1),
    ]
    chosen = torch.stack(kinds).float()[labels, torch.arange(total)]
    images = sign * chosen + noise * torch.randn(total, size, size, generator=draw)
    return _split((images / images.std())[:, None], labels, num, seed)


def adding(seed: int, *, num: int, length: int) -> Task:
    """Sum of the two marked numbers of a sequence, one in each half; the trivial predictor's error is 1/6."""
    draw = torch.Generator().manual_seed(4000 + seed)
    numbers = torch.rand(num + 384, length, generator=draw)
    marks = torch.zeros_like(numbers)
    rows = torch.arange(num + 384)
    half = length // 2
    marks[rows, torch.randint(half, (num + 384,), generator=draw)] = 1
    marks[rows, half + torch.randint(length - half, (num + 384,), generator=draw)] = 1
    targets = (numbers * marks).sum(1, keepdim=True)
    return _split(torch.stack([numbers, marks], 2), targets, num, seed)


def fading(seed: int, *, num: int, length: int, dim: int = 3) -> Task:
    """What remains at a sequence's end of its projected entries, each of which fades to 0.8 of itself a step."""
    draw = torch.Generator().manual_seed(4500 + seed)
    direction = torch.randn(dim, generator=draw)  # first, to be the same for every length
    inputs = torch.randn(num + 384, length, dim, generator=draw)
    ages = torch.arange(length - 1, -1, -1)
    targets = (torch.tanh(inputs @ (direction / direction.norm())) * 0.8**ages).sum(1, keepdim=True)
    return _split(inputs, targets, num, seed)


def recall(seed: int, *, num: int, length: int, symbols: int = 6) -> Task:
    """The first symbol of a sequence, after `length - 1` others."""
    draw = torch.Generator().manual_seed(5000 + seed)
    sequences = torch.randint(symbols, (num + 384, length), generator=draw)
    return _split(sequences, sequences[:, 0].clone(), num, seed)


VOCABULARY = 27


def language(seed: int, *, num: int, context: int) -> Task:
    """Windows of text in a made-up language, and for each character the next: letters 1-26, the space is 0.

    Sentences are subject, verb and object; the verb takes the ending of its subject's class, the object's first letter
    repeats the subject's, so that there is something to learn at a short and at a long range.
    """
    draw = random.Random(6000 + seed)
    vowels, consonants = [1, 5, 9, 15], [2, 4, 7, 11, 12, 13, 14, 16, 18, 19, 20]

    def word(syllables: int) -> list[int]:
        return [letter for _ in range(syllables) for letter in (draw.choice(consonants), draw.choice(vowels))]

    nouns = [(word(draw.choice([2, 2, 3])), draw.randrange(3)) for _ in range(14)]
    verbs = [word(2) for _ in range(8)]
    endings = [[14], [19, 1], [20]]
    needed = (num + 256) * context + 1
    text: list[int] = []
    while len(text) < needed:
        subject, kind = draw.choice(nouns)
        thing, _ = draw.choice(nouns)
        text += [*subject, 0, *draw.choice(verbs), *endings[kind], 0, subject[0], *thing, 0, 0]
    ids = torch.tensor(text[:needed])
    return _split(ids[:-1].view(-1, context), ids[1:].view(-1, context), num, seed)


def token_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy of each next character."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


@torch.no_grad()
def validate(model: nn.Module, task: Task, criterion: Criterion) -> float:
    """The validation loss in evaluation mode; the mode is put back."""
    was = {module: module.training for module in model.modules()}
    model.eval()
    loss = criterion(model(task.val_inputs), task.val_targets).item()
    for module, training in was.items():
        module.training = training
    return loss


@torch.no_grad()
def accuracy(model: nn.Module, task: Task) -> float:
    """Share of right answers on the validation set."""
    was = model.training
    model.eval()
    right = (model(task.val_inputs).argmax(-1) == task.val_targets).float().mean().item()
    model.train(was)
    return right


def fit(
    session: Session,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    task: Task,
    criterion: Criterion,
    *,
    epochs: int,
    batch: int,
    each_step: Any = None,
    each_epoch: Any = None,
    clip: float | None = None,
    tell_data: bool = True,
) -> float:
    """The loop that one writes once and uses for everything.

    Returns the last validation loss, the best one where a remedy asks for an `early-stop`.

    Args:
        session: The run.
        model: To be trained.
        optimizer: Of its parameters.
        task: What to learn.
        criterion: The loss, of outputs and targets.
        epochs: Passes over the training set.
        batch: Examples a step.
        each_step: A scheduler, stepped after each batch.
        each_epoch: A scheduler, stepped after each epoch.
        clip: Norm to clip the gradient to.
        tell_data: Whether the loader goes through `watch.data`.
    """
    loader = task.batches(session.batch_size(batch))
    clip = session.clip_norm(clip)
    quality = best = math.inf
    with session.watch(model, optimizer) as watch:
        for _ in range(epochs):
            model.train()
            for inputs, targets in watch.data(loader) if tell_data else loader:
                optimizer.zero_grad()
                loss = criterion(model(inputs), targets)
                loss.backward()
                if clip is not None:
                    nn.utils.clip_grad_norm_(model.parameters(), clip)
                optimizer.step()
                if each_step is not None:
                    each_step.step()
                watch.step(loss)
            quality = validate(model, task, criterion)
            best = min(best, quality)
            watch.evaluate(loss=quality)
            watch.epoch()
            if each_epoch is not None:
                each_epoch.step()
    return best if session.does("early-stop") else quality
