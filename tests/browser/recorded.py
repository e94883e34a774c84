"""Small trainings with one fault each, recorded in seconds: what the tests of the page open, and its screenshots show.

Usage: python -m tests.browser.recorded FOLDER [NAME...]
"""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import nn

import sonde

Batch = tuple[torch.Tensor, torch.Tensor]

WIDTH = 64
CLASSES = 5


def batches(steps: int, *, size: int = 32, seed: int = 0) -> Iterator[Batch]:
    """Points of five clouds that overlap a little."""
    generator = torch.Generator().manual_seed(seed)
    centres = 1.4 * torch.randn(CLASSES, 16, generator=torch.Generator().manual_seed(7))
    for _ in range(steps):
        labels = torch.randint(CLASSES, (size,), generator=generator)
        yield centres[labels] + torch.randn(size, 16, generator=generator), labels


def layers(depth: int, activation: Callable[[], nn.Module]) -> nn.Sequential:
    """A plain network of `depth` hidden layers."""
    torch.manual_seed(0)
    hidden = [part for _ in range(depth - 1) for part in (nn.Linear(WIDTH, WIDTH), activation())]
    return nn.Sequential(nn.Linear(16, WIDTH), activation(), *hidden, nn.Linear(WIDTH, CLASSES))


def train(folder: Path, model: nn.Sequential, *, lr: float, steps: int = 300, wait_s: float = 0.0) -> None:
    """Train with Adam and record; evaluations on points of their own."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    criterion = nn.CrossEntropyLoss()
    kept_x, kept_y = next(batches(1, size=512, seed=1))
    config = {"lr": lr, "steps": steps, "batch": 32, "depth": sum(isinstance(part, nn.Linear) for part in model)}
    source = slowly(batches(steps), wait_s) if wait_s else batches(steps)
    with sonde.watch(model, optimizer, run=folder, config=config, console="quiet") as watch:
        for step, (x, y) in enumerate(watch.data(source), 1):
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            watch.step(loss)
            if step % 50 == 0:
                model.eval()
                with torch.no_grad():
                    watch.evaluate(loss=float(nn.functional.cross_entropy(model(kept_x), kept_y)))
                model.train()


def slowly(source: Iterator[Batch], wait_s: float) -> Iterator[Batch]:
    """The same batches from a slow disk."""
    for batch in source:
        time.sleep(wait_s)
        yield batch


def healthy(folder: Path) -> None:
    train(folder, layers(3, nn.ReLU), lr=1e-3)


def dead_units(folder: Path) -> None:
    model = layers(4, nn.ReLU)
    with torch.no_grad():
        dict(model.named_parameters())["2.bias"].fill_(-3.0)
    train(folder, model, lr=1e-3)


def vanishing_gradients(folder: Path) -> None:
    train(folder, layers(14, nn.Sigmoid), lr=1e-3)


def learning_rate_too_high(folder: Path) -> None:
    train(folder, layers(4, nn.ReLU), lr=0.3)


def summed_loss(folder: Path) -> None:
    model = layers(3, nn.ReLU)
    descend(folder, model, lr=0.05, criterion=nn.CrossEntropyLoss(reduction="sum"))


def slow_data(folder: Path) -> None:
    train(folder, layers(3, nn.ReLU), lr=1e-3, steps=200, wait_s=0.02)


def exploding_gradients(folder: Path) -> None:
    descend(folder, layers(6, nn.ReLU), lr=0.05, jump=8.0)


def descend(
    folder: Path, model: nn.Module, *, lr: float, criterion: nn.Module | None = None, jump: float = 0.0
) -> None:
    """Train with plain descent and record; half way the learning rate may jump."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    measured, steps = criterion or nn.CrossEntropyLoss(), 240
    config = {"lr": lr, "steps": steps, "batch": 32}
    with sonde.watch(model, optimizer, run=folder, config=config, console="quiet") as watch:
        for step, (x, y) in enumerate(batches(steps), 1):
            if jump and step == steps // 2:
                optimizer.param_groups[0]["lr"] = jump
            loss = measured(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            watch.step(loss)


def overfitting(folder: Path) -> None:
    torch.manual_seed(0)
    x, y = next(batches(1, size=96, seed=2))
    noisy = torch.where(torch.rand(96) < 0.3, torch.randint(CLASSES, (96,)), y)
    kept_x, kept_y = next(batches(1, size=512, seed=1))
    model = layers(3, nn.ReLU)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    config = {"lr": 2e-3, "epochs": 60, "batch": 16, "examples": 96}
    with sonde.watch(model, optimizer, run=folder, config=config, console="quiet") as watch:
        for _ in range(60):
            for rows in watch.data(torch.randperm(96).view(-1, 16)):
                loss = nn.functional.cross_entropy(model(x[rows]), noisy[rows])
                torch.autograd.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
                watch.step(loss)
            with torch.no_grad():
                watch.evaluate(loss=float(nn.functional.cross_entropy(model(kept_x), kept_y)))
            watch.epoch()


KINDS: dict[str, Callable[[Path], None]] = {
    "healthy": healthy,
    "dead-units": dead_units,
    "vanishing-gradients": vanishing_gradients,
    "learning-rate-too-high": learning_rate_too_high,
    "exploding-gradients": exploding_gradients,
    "summed-loss": summed_loss,
    "overfitting": overfitting,
    "slow-data": slow_data,
}


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    for name in sys.argv[2:] or KINDS:
        KINDS[name](folder / name)
        print(folder / name)


if __name__ == "__main__":
    main()
