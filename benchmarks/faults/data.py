"""Faults of the data that a training is given, and data that only look faulty."""

import time
from collections.abc import Callable, Iterator

import torch
from benchmarks.faults.scenario import Session
from benchmarks.faults.small_models import (
    Batch,
    ConvNet,
    Loss,
    Recurrent,
    Task,
    accuracy,
    begin,
    chains,
    clusters,
    mildly,
    mlp,
    pictures,
    token_loss,
    validate,
    waves,
)
from torch import Tensor, nn
from torch.nn import functional

Spoil = Callable[[int, Tensor, Tensor], Batch]


class Stream:
    """Batches drawn at random, an epoch at a time, which something may have spoilt on their way."""

    def __init__(self, task: Task, batch_size: int, num_steps: int, spoil: Spoil | None = None) -> None:
        self._task, self._batch_size, self._num_steps, self._spoil = task, batch_size, num_steps, spoil
        self._step = 0

    def __iter__(self) -> Iterator[Batch]:
        for inputs, targets in self._task.batches(self._batch_size, self._num_steps):
            yield (inputs, targets) if self._spoil is None else self._spoil(self._step, inputs, targets)
            self._step += 1


def train(
    session: Session,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    stream: Stream,
    task: Task,
    loss_of: Loss = functional.cross_entropy,
    *,
    epochs: int = 5,
) -> float:
    """A loop that hands its batches through Sonde."""
    with session.watch(model, optimizer) as watch:
        for _ in range(epochs):
            for inputs, targets in watch.data(stream):
                optimizer.zero_grad()
                loss = loss_of(model(inputs), targets)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            found = validate(model, task, loss_of)
            watch.evaluate(loss=found)
    return found


def train_apart(
    session: Session,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    stream: Stream,
    task: Task,
    loss_of: Loss = functional.cross_entropy,
    *,
    epochs: int = 5,
) -> float:
    """A loop whose batches Sonde does not see."""
    with session.watch(model, optimizer) as watch:
        for _ in range(epochs):
            for inputs, targets in stream:
                loss = loss_of(model(inputs), targets)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                watch.step(loss)
            found = validate(model, task, loss_of)
            watch.evaluate(loss=found)
    return found


BAD_STEP = 150


def bad_batch_scale(session: Session) -> float:
    """One batch comes in other units, a thousand times as large."""
    pick = begin(session, 101)
    task = clusters()
    model = mlp(16, pick.choice([48, 64, 80]), 48, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(mildly(pick, 0.05)), momentum=0.9)

    def spoil(step: int, inputs: Tensor, targets: Tensor) -> Batch:
        return (inputs * 1_000 if step == BAD_STEP and not session.fixed else inputs), targets

    return train(session, model, optimizer, Stream(task, 64, 60, spoil), task, epochs=4)


def bad_batch_garbage(session: Session) -> float:
    """One batch of a broken camera: stripes at full contrast, all labelled alike."""
    pick = begin(session, 102)
    task = pictures()
    model = ConvNet(5, width=pick.choice([10, 12, 16]))
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(mildly(pick, 0.05)), momentum=0.9)

    def spoil(step: int, inputs: Tensor, targets: Tensor) -> Batch:
        if step != BAD_STEP or session.fixed:
            return inputs, targets
        stripes = torch.where(torch.arange(12) % 2 == 0, 60.0, -60.0).expand_as(inputs)
        return stripes + inputs, torch.full_like(targets, pick.randrange(5))

    return train_apart(session, model, optimizer, Stream(task, 32, 50, spoil), task, epochs=4)


def nonfinite_input_nan(session: Session) -> float:
    """A single missing value, read as NaN."""
    pick = begin(session, 103)
    task = waves()
    model = mlp(8, pick.choice([48, 64, 80]), 48, 1, activation=nn.Tanh)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(mildly(pick, 5e-3)))

    def spoil(step: int, inputs: Tensor, targets: Tensor) -> Batch:
        if step == BAD_STEP and not session.fixed:
            inputs[3, 2] = torch.nan
        return inputs, targets

    return train(session, model, optimizer, Stream(task, 64, 60, spoil), task, functional.mse_loss, epochs=4)


def nonfinite_input_infinity(session: Session) -> float:
    """The logarithm of a zero, in a pixel of one picture."""
    pick = begin(session, 104)
    task = pictures()
    model = ConvNet(5, width=pick.choice([10, 12, 16]), norm=nn.BatchNorm2d)
    optimizer = torch.optim.AdamW(model.parameters(), lr=session.lr(mildly(pick, 3e-3)))

    def spoil(step: int, inputs: Tensor, targets: Tensor) -> Batch:
        if step == BAD_STEP and not session.fixed:
            inputs[0, 0, 5, 5] = -torch.inf
        return inputs, targets

    return train_apart(session, model, optimizer, Stream(task, 32, 50, spoil), task, epochs=4)


def unnormalised_inputs_columns(session: Session) -> float:
    """Columns of a table in their own units: shares, kilometres, pascals."""
    pick = begin(session, 105)
    task = clusters()
    units = 10 ** torch.empty(16).uniform_(-2.0, 3.0)
    offsets = torch.randn(16) * 2
    if not session.fixed:
        task = Task(
            (task.inputs + offsets) * units, task.targets, (task.val_inputs + offsets) * units, task.val_targets
        )
    model = mlp(16, pick.choice([48, 64, 80]), 48, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(mildly(pick, 0.03)), momentum=0.9)
    return train(session, model, optimizer, Stream(task, 64, 60), task)


def unnormalised_inputs_pixels(session: Session) -> float:
    """Pixels from 0 to 255 into a network without normalisation."""
    pick = begin(session, 106)
    task = _with_pixels(pictures(), raw=not session.fixed)
    model = ConvNet(5, width=pick.choice([10, 12, 16]))
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(mildly(pick, 0.05)), momentum=0.9)
    return train_apart(session, model, optimizer, Stream(task, 32, 60), task)


def _with_pixels(task: Task, *, raw: bool) -> Task:
    def pixels(shown: Tensor) -> Tensor:
        grey = (shown * 40 + 128).round().clamp(0, 255)
        return grey if raw else (grey - 128) / 40

    return Task(pixels(task.inputs), task.targets, pixels(task.val_inputs), task.val_targets)


def data_drift_jump(session: Session) -> float:
    """From one step on the examples come from another source, whose sensor reads otherwise."""
    pick = begin(session, 107)
    task = waves()
    model = mlp(8, pick.choice([48, 64, 80]), 48, 1, activation=nn.Tanh)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(mildly(pick, 5e-3)))
    offset = 1.5 * torch.randn(8).sign()

    def spoil(step: int, inputs: Tensor, targets: Tensor) -> Batch:
        return (inputs * 1.8 + offset if step >= BAD_STEP and not session.fixed else inputs), targets

    return train(session, model, optimizer, Stream(task, 64, 60, spoil), task, functional.mse_loss)


def data_drift_slow(session: Session) -> float:
    """A lamp that ages: pictures grow darker and flatter from step 100 on."""
    pick = begin(session, 108)
    task = pictures()
    model = ConvNet(5, width=pick.choice([10, 12, 16]))
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(mildly(pick, 3e-3)))

    def spoil(step: int, inputs: Tensor, targets: Tensor) -> Batch:
        age = 0.0 if session.fixed else max(0.0, (step - 100) / 200)
        return inputs * (1 - 0.7 * age) - 4 * age, targets

    return train_apart(session, model, optimizer, Stream(task, 32, 60, spoil), task)


def shuffled_labels(session: Session) -> float:
    """Labels were shuffled on their way, inputs were not: they have nothing to do with each other."""
    pick = begin(session, 109)
    task = clusters(16384)
    model = mlp(16, pick.choice([32, 40, 48]), 32, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(mildly(pick, 0.05)), momentum=0.9)
    if not session.fixed:
        shuffled = task.targets[torch.randperm(len(task.targets))]
        task = Task(task.inputs, shuffled, task.val_inputs, task.val_targets)
    return train(session, model, optimizer, Stream(task, 64, 60), task)


def constant_labels(session: Session) -> float:
    """An index forgotten in the collation: each example gets the first label of the data."""
    pick = begin(session, 110)
    task = pictures()
    model = ConvNet(5, width=pick.choice([10, 12, 16]))
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(mildly(pick, 3e-3)))
    label = pick.randrange(5)

    def spoil(step: int, inputs: Tensor, targets: Tensor) -> Batch:
        return inputs, targets if session.fixed else torch.full_like(targets, label)

    return train(session, model, optimizer, Stream(task, 32, 60, spoil), task, epochs=4)


def labels_of_next_row(session: Session) -> float:
    """Off by one: each example is paired with the value of the following row."""
    pick = begin(session, 111)
    task = waves(8192)
    model = mlp(8, pick.choice([32, 40, 48]), 32, 1, activation=nn.Tanh)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(mildly(pick, 3e-3)))
    if not session.fixed:
        task = Task(task.inputs, task.targets.roll(1, 0), task.val_inputs, task.val_targets)
    return train_apart(session, model, optimizer, Stream(task, 64, 70), task, functional.mse_loss)


def healthy_pixels(session: Session) -> float:
    """Pixels from 0 to 255 into a network that normalises them itself."""
    pick = begin(session, 140)
    task = _with_pixels(pictures(), raw=True)
    model = nn.Sequential(nn.BatchNorm2d(1), ConvNet(5, width=pick.choice([10, 12, 16])))
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(mildly(pick, 0.03)), momentum=0.9)
    return train_apart(session, model, optimizer, Stream(task, 32, 60), task)


def healthy_curriculum(session: Session) -> float:
    """Short texts first, longer ones later, on purpose."""
    pick = begin(session, 141)
    task = chains()
    model = Recurrent(20, width=pick.choice([32, 40, 48]))
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(mildly(pick, 8e-3)))

    def shorten(step: int, inputs: Tensor, targets: Tensor) -> Batch:
        length = min(20, 6 + step // 15)
        return inputs[:, :length], targets[:, :length]

    return train(session, model, optimizer, Stream(task, 32, 60, shorten), task, token_loss)


def healthy_slow_first_batch(session: Session) -> float:
    """The first batch waits for a cache to be filled, the others do not."""
    pick = begin(session, 142)
    task = clusters()
    model = mlp(16, pick.choice([48, 64, 80]), 48, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(mildly(pick, 0.05)), momentum=0.9)

    def fill(step: int, inputs: Tensor, targets: Tensor) -> Batch:
        if step == 0:
            time.sleep(1.0)
        return inputs, targets

    return train(session, model, optimizer, Stream(task, 64, 60, fill), task)


def healthy_validation_pauses(session: Session) -> float:
    """Long evaluations between the epochs."""
    pick = begin(session, 143)
    task = pictures()
    model = ConvNet(5, width=pick.choice([10, 12, 16]))
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(mildly(pick, 3e-3)))
    loader = task.loader(32)
    with session.watch(model, optimizer) as watch:
        for _ in range(5):
            for shown, labels in loader:
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(shown), labels)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            time.sleep(0.4)
            found = validate(model, task)
            watch.evaluate(loss=found, metrics={"accuracy": accuracy(model, task)})
            watch.epoch()
    return found
