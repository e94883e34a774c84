"""Faults of memory and time: trainings that learn well but leak, wait or slow down."""

import time
from collections.abc import Iterator

import torch
from benchmarks.faults.scenario import Session
from benchmarks.faults.small_models import (
    Batch,
    ConvNet,
    Task,
    begin,
    clusters,
    mildly,
    mlp,
    pictures,
    validate,
)
from torch import Tensor, nn
from torch.nn import functional


def memory_leak_losses(session: Session) -> float:
    """Losses are kept for a picture at the end, each with its whole graph."""
    pick = begin(session, 301)
    task = clusters()
    width = pick.choice([192, 256])
    model = mlp(16, width, width, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(mildly(pick, 0.1)))
    loader = task.loader(128)
    history: list[Tensor] = []
    with session.watch(model, optimizer) as watch:
        for _ in range(9):
            for points, labels in watch.data(loader):
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(points), labels)
                loss.backward(retain_graph=not session.fixed)
                optimizer.step()
                history.append(loss.detach() if session.fixed else loss)
                watch.step(loss)
            found = validate(model, task)
            watch.evaluate(loss=found)
    assert len(history) == 9 * 32
    return found


class Remembering(nn.Module):
    """A network that keeps what its first layer found, for later inspection."""

    def __init__(self, net: ConvNet, *, keep: int | None) -> None:
        super().__init__()
        self.net, self.keep = net, keep
        self.seen: list[Tensor] = []

    def forward(self, shown: Tensor) -> Tensor:
        first = self.net.features[:2](shown)
        self.seen.append(first.detach())
        if self.keep is not None:
            del self.seen[: -self.keep]
        out: Tensor = self.net.head(self.net.features[2:](first).flatten(1))
        return out


def memory_leak_features(session: Session) -> float:
    """The model keeps the first features of all batches, instead of the last ten's."""
    pick = begin(session, 302)
    task = pictures()
    model = Remembering(ConvNet(5, width=pick.choice([48, 64])), keep=10 if session.fixed else None)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(mildly(pick, 2e-3)))
    loader = task.loader(32)
    with session.watch(model, optimizer) as watch:
        for _ in range(5):
            for shown, labels in loader:
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(shown), labels)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            found = validate(model, task)
            watch.evaluate(loss=found)
    return found


class Disk:
    """Batches that take their time to come.

    Args:
        wait_s: For each batch.
        every: Batches to a chunk, whose waits are paid all at once before its first batch.
    """

    def __init__(self, task: Task, batch_size: int, num_steps: int, *, wait_s: float, every: int = 1) -> None:
        self._task, self._batch_size, self._num_steps = task, batch_size, num_steps
        self._wait_s, self._every = wait_s, every

    def __iter__(self) -> Iterator[Batch]:
        for i, batch in enumerate(self._task.batches(self._batch_size, self._num_steps)):
            if i % self._every == 0:
                time.sleep(self._wait_s * self._every)
            yield batch


def data_stall_steady(session: Session) -> float:
    """Each batch is read and decoded on the spot, which takes longer than the step."""
    pick = begin(session, 303)
    task = pictures()
    model = ConvNet(5, width=pick.choice([10, 12, 16]))
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(mildly(pick, 3e-3)))
    disk = Disk(task, 32, 50, wait_s=0.0002 if session.fixed else mildly(pick, 0.02))
    with session.watch(model, optimizer) as watch:
        for _ in range(4):
            for shown, labels in watch.data(disk):
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(shown), labels)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            found = validate(model, task)
            watch.evaluate(loss=found)
    return found


def data_stall_bursts(session: Session) -> float:
    """A chunk of batches comes at once, and then training waits for the next."""
    pick = begin(session, 304)
    task = clusters()
    model = mlp(16, pick.choice([48, 64, 80]), 48, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(mildly(pick, 0.1)), momentum=0.9)
    disk = Disk(task, 64, 60, wait_s=0.0002 if session.fixed else mildly(pick, 0.015), every=pick.choice([12, 15]))
    with session.watch(model, optimizer) as watch:
        for _ in range(5):
            for points, labels in watch.data(disk):
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(points), labels)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            found = validate(model, task)
            watch.evaluate(loss=found)
    return found


def slowdown_hooks(session: Session) -> float:
    """Each epoch hangs up the same hook once more, and all of them work at every step."""
    pick = begin(session, 305)
    task = clusters()
    model = mlp(16, pick.choice([64, 80]), 64, 6)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(mildly(pick, 3e-3)))
    loader = task.loader(64)
    ranks: list[float] = []

    def note_rank(module: nn.Module, args: tuple[Tensor, ...], out: Tensor) -> None:
        shifted = out.detach() + 1e-3 * out.detach().std() * torch.arange(8).view(-1, 1, 1)
        ranks.append(torch.linalg.matrix_rank(shifted).float().mean().item())

    with session.watch(model, optimizer) as watch:
        for epoch in range(6):
            if epoch == 0 or not session.fixed:
                model[2].register_forward_hook(note_rank)
            for points, labels in watch.data(loader):
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(points), labels)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            found = validate(model, task)
            watch.evaluate(loss=found)
            watch.epoch()
    return found


def slowdown_throttled(session: Session) -> float:
    """From step 150 on the machine is slower: every step takes several times as long."""
    pick = begin(session, 306)
    task = pictures()
    model = ConvNet(5, width=pick.choice([10, 12, 16]))
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(mildly(pick, 3e-3)))
    step = 0
    with session.watch(model, optimizer) as watch:
        for _ in range(5):
            for shown, labels in task.loader(32):
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(shown), labels)
                loss.backward()
                if step >= 150 and not session.fixed:
                    time.sleep(0.02)
                optimizer.step()
                watch.step(loss)
                step += 1
            found = validate(model, task)
            watch.evaluate(loss=found)
    return found


def healthy_memory_warm_up(session: Session) -> float:
    """A replay memory fills up during the first epochs and then stays as it is."""
    pick = begin(session, 340)
    task = pictures()
    model = ConvNet(5, width=pick.choice([24, 32]))
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(mildly(pick, 3e-3)))
    loader = task.loader(32)
    memory: list[Tensor] = []
    with session.watch(model, optimizer) as watch:
        for _ in range(5):
            for shown, labels in watch.data(loader):
                memory.append(shown.expand(-1, 8, -1, -1).clone())
                del memory[:-80]
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(shown), labels)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            found = validate(model, task)
            watch.evaluate(loss=found)
    return found
