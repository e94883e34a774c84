"""Mistakes in the training loop or in the wiring of the model, and loops that only look mistaken."""

import copy
from itertools import chain
from typing import Any

import torch
from benchmarks.faults.scenario import Session
from benchmarks.faults.small_models import (
    ConvNet,
    Recurrent,
    Transformer,
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
from torch.utils.checkpoint import checkpoint

# zero_grad


def missing_zero_grad_mlp(session: Session) -> float:
    pick = begin(session, 1)
    task = clusters()
    model = mlp(16, pick.choice([48, 64, 80]), 48, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(mildly(pick, 0.2)))
    loader = task.loader(64)
    with session.watch(model, optimizer) as watch:
        for _ in range(5):
            for points, labels in watch.data(loader):
                if session.fixed:
                    optimizer.zero_grad()
                loss = functional.cross_entropy(model(points), labels)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            found = validate(model, task)
            watch.evaluate(loss=found, metrics={"accuracy": accuracy(model, task)})
    return found


def missing_zero_grad_gru(session: Session) -> float:
    pick = begin(session, 2)
    task = chains()
    model = Recurrent(20, width=pick.choice([32, 40, 48]))
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(mildly(pick, 8e-3)))
    loader = task.loader(32)
    with session.watch(model, optimizer) as watch:
        for _ in range(4):
            for tokens, following in loader:
                loss = token_loss(model(tokens), following)
                loss.backward()
                optimizer.step()
                if session.fixed:
                    optimizer.zero_grad()
                watch.step(loss)
            found = validate(model, task, token_loss)
            watch.evaluate(loss=found)
    return found


def zero_grad_misplaced_mlp(session: Session) -> float:
    pick = begin(session, 3)
    task = waves()
    model = mlp(8, pick.choice([48, 64, 80]), 48, 1, activation=nn.Tanh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=session.lr(mildly(pick, 5e-3)), weight_decay=0.01)
    loader = task.loader(64)
    with session.watch(model, optimizer) as watch:
        for _ in range(4):
            for points, values in watch.data(loader):
                if session.fixed:
                    optimizer.zero_grad()
                loss = functional.mse_loss(model(points), values)
                loss.backward()
                if not session.fixed:
                    optimizer.zero_grad()
                optimizer.step()
                watch.step(loss)
            found = validate(model, task, functional.mse_loss)
            watch.evaluate(loss=found)
    return found


def zero_grad_misplaced_convnet(session: Session) -> float:
    pick = begin(session, 4)
    task = pictures()
    model = ConvNet(5, width=pick.choice([10, 12, 16]))
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(mildly(pick, 0.05)), momentum=0.9)
    loader = task.loader(32)
    with session.watch(model, optimizer) as watch:
        for _ in range(4):
            for shown, labels in loader:
                loss = functional.cross_entropy(model(shown), labels)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 5.0)
                if session.fixed:
                    optimizer.step()
                    optimizer.zero_grad()
                else:
                    optimizer.zero_grad(set_to_none=False)
                    optimizer.step()
                watch.step(loss)
            found = validate(model, task)
            watch.evaluate(loss=found, metrics={"accuracy": accuracy(model, task)})
    return found


# accumulation and reduction


def accumulation_not_scaled_mlp(session: Session) -> float:
    pick = begin(session, 5)
    task = clusters(8192)
    model = mlp(16, pick.choice([48, 64, 80]), 48, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(mildly(pick, 0.4)), momentum=0.8)
    num_micro = pick.choice([6, 8])
    loader = task.loader(16)
    with session.watch(model, optimizer) as watch:
        for _ in range(3):
            for i, (points, labels) in enumerate(watch.data(loader)):
                loss = functional.cross_entropy(model(points), labels)
                (loss / num_micro if session.fixed else loss).backward()
                if (i + 1) % num_micro == 0:
                    optimizer.step()
                    optimizer.zero_grad()
                watch.step(loss)
            optimizer.zero_grad()
            found = validate(model, task)
            watch.evaluate(loss=found, metrics={"accuracy": accuracy(model, task)})
    return found


def accumulation_not_scaled_autoencoder(session: Session) -> float:
    pick = begin(session, 6)
    task = pictures(4096, noise=0.3)
    model = nn.Sequential(nn.Flatten(), mlp(144, pick.choice([56, 64, 72]), 16, 64, 144))
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(mildly(pick, 2.0)), momentum=0.8)
    num_micro = 4

    def loss_of(restored: Tensor, shown: Tensor) -> Tensor:
        return functional.mse_loss(restored, shown.flatten(1))

    def judge() -> float:
        with torch.no_grad():
            return loss_of(model(task.val_inputs), task.val_inputs).item()

    with session.watch(model, optimizer) as watch:
        for _ in range(6):
            micro = 0
            for shown, _ in task.batches(32, 160):
                loss = loss_of(model(shown), shown)
                if session.fixed:
                    loss = loss / num_micro
                loss.backward()
                micro += 1
                if micro == num_micro:
                    optimizer.step()
                    optimizer.zero_grad()
                    micro = 0
                watch.step(loss)
            found = judge()
            watch.evaluate(loss=found)
    return found


def wrong_loss_reduction_mlp(session: Session) -> float:
    pick = begin(session, 7)
    task = clusters()
    model = mlp(16, pick.choice([48, 64, 80]), 48, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(mildly(pick, 0.1)), momentum=0.9)
    criterion = nn.CrossEntropyLoss(reduction="mean" if session.fixed else "sum")
    loader = task.loader(64)
    with session.watch(model, optimizer) as watch:
        for _ in range(4):
            for points, labels in watch.data(loader):
                optimizer.zero_grad()
                loss = criterion(model(points), labels)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            found = validate(model, task)
            watch.evaluate(loss=found, metrics={"accuracy": accuracy(model, task)})
    return found


def wrong_loss_reduction_gru(session: Session) -> float:
    """Summed over the tokens of a batch."""
    pick = begin(session, 8)
    task = chains()
    model = Recurrent(20, width=pick.choice([32, 40, 48]))
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(mildly(pick, 1.0)), momentum=0.9)
    reduction = "mean" if session.fixed else "sum"
    loader = task.loader(32)
    with session.watch(model, optimizer) as watch:
        for _ in range(5):
            for tokens, following in loader:
                optimizer.zero_grad()
                logits = model(tokens)
                loss = functional.cross_entropy(logits.flatten(0, 1), following.flatten(), reduction=reduction)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            found = validate(model, task, token_loss)
            watch.evaluate(loss=found)
    return found


def padding_not_masked(session: Session) -> float:
    """Most positions are padding and count as if they were text."""
    pick = begin(session, 9)
    pad, length = 20, 40
    task = chains(2048)
    real = torch.randint(3, 9, (len(task.inputs),))
    padded = torch.full((2, len(task.inputs), length), pad)
    seen = torch.arange(20) < real[:, None]
    padded[0, :, :20] = task.inputs.masked_fill(~seen, pad)
    padded[1, :, :20] = task.targets.masked_fill(~seen, pad)
    model = Recurrent(21, width=pick.choice([32, 40]))
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(mildly(pick, 0.12)), momentum=0.9)
    with session.watch(model, optimizer) as watch:
        for _ in range(3):
            order = torch.randperm(len(task.inputs)).view(-1, 32)
            for rows in order:
                tokens, following = padded[0, rows], padded[1, rows]
                optimizer.zero_grad()
                logits = model(tokens).flatten(0, 1)
                ignored = pad if session.fixed else -100
                loss = functional.cross_entropy(logits, following.flatten(), ignore_index=ignored)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            found = validate(model, task, token_loss)
            watch.evaluate(loss=found)
    return found


# the head


def double_softmax_mlp(session: Session) -> float:
    pick = begin(session, 10)
    task = clusters()
    model = mlp(16, pick.choice([48, 64, 80]), 48, 6)
    if not session.fixed:
        model.append(nn.Softmax(dim=1))
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(mildly(pick, 0.1)), momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    loader = task.loader(64)
    with session.watch(model, optimizer) as watch:
        for _ in range(5):
            for points, labels in watch.data(loader):
                optimizer.zero_grad()
                loss = criterion(model(points), labels)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            found = validate(model, task)
            watch.evaluate(loss=found, metrics={"accuracy": accuracy(model, task)})
    return found


class Classifier(nn.Module):
    """A convolutional network that gives probabilities, if asked."""

    def __init__(self, net: nn.Module, *, probabilities: bool) -> None:
        super().__init__()
        self.net, self.probabilities = net, probabilities

    def forward(self, shown: Tensor) -> Tensor:
        logits: Tensor = self.net(shown)
        return logits.softmax(-1) if self.probabilities else logits


def double_softmax_convnet(session: Session) -> float:
    pick = begin(session, 11)
    task = pictures()
    model = Classifier(ConvNet(5, width=pick.choice([10, 12, 16])), probabilities=not session.fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(mildly(pick, 3e-3)))
    loader = task.loader(32)
    with session.watch(model, optimizer) as watch:
        for _ in range(4):
            for shown, labels in loader:
                loss = functional.cross_entropy(model(shown), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                watch.step(loss)
            found = validate(model, task)
            watch.evaluate(loss=found, metrics={"accuracy": accuracy(model, task)})
    return found


# modes


def eval_mode_in_training_dropout(session: Session) -> float:
    """The first evaluation leaves the model in eval mode: it learns few examples by heart."""
    pick = begin(session, 12)
    task = clusters(320, dims=24, apart=0.7)
    model = mlp(24, pick.choice([160, 192]), 160, 6, dropout=0.6)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(mildly(pick, 3e-3)))
    loader = task.loader(32)
    with session.watch(model, optimizer) as watch:
        for _ in range(36):
            if session.fixed:
                model.train()
            for points, labels in watch.data(loader):
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(points), labels)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            model.eval()
            with torch.no_grad():
                found = functional.cross_entropy(model(task.val_inputs), task.val_targets).item()
            watch.evaluate(loss=found)
    return found


def eval_mode_in_training_batchnorm(session: Session) -> float:
    """A check of the validation code before training leaves the model in eval mode: nothing is normalised."""
    pick = begin(session, 13)
    task = pictures()
    model = ConvNet(5, width=pick.choice([10, 12]), depth=8, norm=nn.BatchNorm2d)
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(mildly(pick, 0.05)), momentum=0.9)
    loader = task.loader(32)
    validate(model, task)
    if not session.fixed:
        model.eval()
    with session.watch(model, optimizer) as watch:
        for _ in range(4):
            for shown, labels in loader:
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(shown), labels)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            was_training = model.training
            model.eval()
            with torch.no_grad():
                found = functional.cross_entropy(model(task.val_inputs), task.val_targets).item()
            model.train(was_training)
            watch.evaluate(loss=found)
    return found


def train_mode_in_evaluation_dropout(session: Session) -> float:
    pick = begin(session, 14)
    task = clusters()
    model = mlp(16, pick.choice([96, 128]), 96, 6, dropout=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(mildly(pick, 3e-3)))
    loader = task.loader(64)
    with session.watch(model, optimizer) as watch:
        for _ in range(5):
            model.train()
            for points, labels in watch.data(loader):
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(points), labels)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            if session.fixed:
                model.eval()
            with torch.no_grad():
                found = functional.cross_entropy(model(task.val_inputs), task.val_targets).item()
            watch.evaluate(loss=found)
    return found


def train_mode_in_evaluation_batchnorm(session: Session) -> float:
    """Validation goes through the classes one after the other, in small batches that batch norm normalises."""
    pick = begin(session, 15)
    task = pictures()
    model = ConvNet(5, width=pick.choice([10, 12, 16]), norm=nn.BatchNorm2d)
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(mildly(pick, 0.05)), momentum=0.9)
    loader = task.loader(32)
    in_order = torch.split(task.val_targets.argsort(), 16)
    with session.watch(model, optimizer) as watch:
        for _ in range(4):
            for shown, labels in loader:
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(shown), labels)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            if session.fixed:
                model.eval()
            with torch.no_grad():
                losses = [
                    functional.cross_entropy(model(task.val_inputs[rows]), task.val_targets[rows]) for rows in in_order
                ]
            model.train()
            found = torch.stack(losses).mean().item()
            watch.evaluate(loss=found)
    return found


def train_eval_mismatch_momentum(session: Session) -> float:
    """Running statistics that follow far too slowly."""
    pick = begin(session, 16)
    task = pictures()
    model = ConvNet(5, width=pick.choice([10, 12, 16]), depth=3, norm=nn.BatchNorm2d)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 0.1 if session.fixed else 1e-4
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(mildly(pick, 3e-3)))
    loader = task.loader(32)
    with session.watch(model, optimizer) as watch:
        for _ in range(4):
            for shown, labels in watch.data(loader):
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(shown), labels)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            found = validate(model, task)
            watch.evaluate(loss=found)
    return found


def train_eval_mismatch_domains(session: Session) -> float:
    """Batches from one of two cameras each: batch norm sees them apart in training, together in evaluation."""
    pick = begin(session, 17)
    task = pictures()

    def film(shown: Tensor, bright: Tensor) -> Tensor:
        return shown * (0.6 + 1.5 * bright) + 2.5 * (2 * bright - 1)

    def halves(num: int) -> Tensor:
        return (torch.arange(num) % 2).float().view(-1, 1, 1, 1)

    val_inputs = film(task.val_inputs, halves(len(task.val_inputs)))
    model = ConvNet(5, width=pick.choice([10, 12, 16]), depth=3, norm=nn.BatchNorm2d)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(mildly(pick, 3e-3)))
    step = 0
    with session.watch(model, optimizer) as watch:
        for _ in range(4):
            for shown, labels in task.loader(32):
                bright = halves(32) if session.fixed else torch.full((32, 1, 1, 1), float(step % 2))
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(film(shown, bright)), labels)
                loss.backward()
                optimizer.step()
                watch.step(loss)
                step += 1
            model.eval()
            with torch.no_grad():
                found = functional.cross_entropy(model(val_inputs), task.val_targets).item()
            model.train()
            watch.evaluate(loss=found)
    return found


def batchnorm_small_batch_mlp(session: Session) -> float:
    """Two examples to a batch, of which batch norm leaves the sign of their difference."""
    pick = begin(session, 18)
    task = clusters(apart=1.2)
    width = pick.choice([48, 64])
    norm = nn.LayerNorm if session.fixed else nn.BatchNorm1d
    model = nn.Sequential(
        nn.Linear(16, width), norm(width), nn.ReLU(), nn.Linear(width, width), norm(width), nn.ReLU(),
        nn.Linear(width, 6),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(mildly(pick, 2e-3)))
    with session.watch(model, optimizer) as watch:
        for _ in range(5):
            for points, labels in watch.data(task.batches(session.batch_size(2), 100)):
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(points), labels)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            found = validate(model, task)
            watch.evaluate(loss=found)
    return found


def batchnorm_small_batch_convnet(session: Session) -> float:
    pick = begin(session, 19)
    task = pictures()
    width = pick.choice([32, 40])
    norm = nn.LayerNorm if session.does("add-layernorm") else nn.BatchNorm1d
    model = nn.Sequential(
        nn.Conv2d(1, 12, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(),
        nn.Linear(12 * 36, width), norm(width), nn.ReLU(),
        nn.Linear(width, width), norm(width), nn.ReLU(), nn.Linear(width, 5),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(mildly(pick, 0.02)), momentum=0.9)
    batch_size = session.batch_size(32 if session.fixed else 2)
    with session.watch(model, optimizer) as watch:
        for _ in range(4):
            for shown, labels in task.batches(batch_size, 90):
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(shown), labels)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            found = validate(model, task)
            watch.evaluate(loss=found)
    return found


# wiring


class TwoPart(nn.Module):
    """An encoder with a head on its features."""

    def __init__(self, encoder: nn.Module, head: nn.Module, *, detached: bool = False) -> None:
        super().__init__()
        self.encoder, self.head, self.detached = encoder, head, detached

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.encoder(x)
        out: Tensor = self.head(features.detach() if self.detached else features)
        return out


def disconnected_layer_detach(session: Session) -> float:
    pick = begin(session, 20)
    task = pictures(classes=8, noise=1.0)
    width = pick.choice([10, 12])
    encoder = nn.Sequential(ConvNet(8, width=width).features, nn.Flatten(), nn.Linear(9 * width, 12), nn.ReLU())
    model = TwoPart(encoder, nn.Linear(12, 8), detached=not session.fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(mildly(pick, 3e-3)))
    loader = task.loader(32)
    with session.watch(model, optimizer) as watch:
        for _ in range(4):
            for shown, labels in watch.data(loader):
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(shown), labels)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            found = validate(model, task)
            watch.evaluate(loss=found, metrics={"accuracy": accuracy(model, task)})
    return found


class Branches(nn.Module):
    """A wide branch on half of the inputs, a deep one on the other half."""

    def __init__(self, width: int, *, joined: bool) -> None:
        super().__init__()
        self.left, self.right = mlp(8, width, width), mlp(8, width, width)
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(2 * width, 6))
        self.joined = joined

    def forward(self, points: Tensor) -> Tensor:
        left = self.left(points[:, :8])
        right = self.right(points[:, 8:]) if self.joined else left
        out: Tensor = self.head(torch.cat([left, right], 1))
        return out


def disconnected_layer_branch(session: Session) -> float:
    """A slip of the pen joins a branch with itself, and the other one is not used."""
    pick = begin(session, 21)
    task = clusters()
    model = Branches(pick.choice([40, 48, 56]), joined=session.fixed)
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(mildly(pick, 0.1)), momentum=0.9)
    loader = task.loader(64)
    with session.watch(model, optimizer) as watch:
        for _ in range(5):
            for points, labels in loader:
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(points), labels)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            found = validate(model, task)
            watch.evaluate(loss=found)
    return found


def parameter_not_in_optimizer_head(session: Session) -> float:
    """The optimiser was built before the last layer was replaced for the new task."""
    pick = begin(session, 22)
    old, new = pictures(classes=5), pictures(classes=8, noise=1.0)
    model = ConvNet(5, width=pick.choice([10, 12]), depth=3)
    before = torch.optim.Adam(model.parameters(), lr=3e-3)
    for shown, labels in old.batches(32, 80):
        before.zero_grad()
        functional.cross_entropy(model(shown), labels).backward()
        before.step()
    rate = session.lr(mildly(pick, 0.05))

    def optimizer_of(model: ConvNet) -> torch.optim.Optimizer:
        groups: list[dict[str, Any]] = [
            {"params": model.features.parameters(), "lr": rate / 30},
            {"params": model.head.parameters()},
        ]
        return torch.optim.SGD(groups, lr=rate, momentum=0.9)

    optimizer = optimizer_of(model)
    model.head = nn.Linear(model.head.in_features, 8)
    if session.fixed:
        optimizer = optimizer_of(model)
    loader = new.loader(32)
    with session.watch(model, optimizer) as watch:
        for _ in range(4):
            for shown, labels in watch.data(loader):
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(shown), labels)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            found = validate(model, new)
            watch.evaluate(loss=found, metrics={"accuracy": accuracy(model, new)})
    return found


def parameter_not_in_optimizer_part(session: Session) -> float:
    """The list of parts that the optimiser is given leaves out the recurrent one."""
    pick = begin(session, 23)
    task = chains(1024, vocabulary=40)
    model = Recurrent(40, width=pick.choice([24, 32]), embedding=4)
    parts = [model.embedding, model.gru, model.head] if session.fixed else [model.embedding, model.head]
    parameters = list(chain.from_iterable(part.parameters() for part in parts))
    optimizer = torch.optim.AdamW(parameters, lr=session.lr(mildly(pick, 0.01)))
    loader = task.loader(32)
    with session.watch(model, optimizer) as watch:
        for _ in range(8):
            for tokens, following in loader:
                optimizer.zero_grad()
                loss = token_loss(model(tokens), following)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            found = validate(model, task, token_loss)
            watch.evaluate(loss=found)
    return found


def frozen_layer_by_name(session: Session) -> float:
    """Only the first layer was to be frozen, but the pattern fits all layers but the head."""
    pick = begin(session, 24)
    task = pictures(classes=8, noise=1.0)
    width = pick.choice([10, 12])
    encoder = nn.Sequential(*ConvNet(8, width=width).features, nn.Flatten(), nn.Linear(9 * width, 12), nn.ReLU())
    model = TwoPart(encoder, nn.Linear(12, 8))
    frozen = "encoder.0." if session.fixed else "encoder."
    for name, parameter in model.named_parameters():
        if name.startswith(frozen):
            parameter.requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(mildly(pick, 3e-3)))
    loader = task.loader(32)
    with session.watch(model, optimizer) as watch:
        for _ in range(5):
            for shown, labels in watch.data(loader):
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(shown), labels)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            found = validate(model, task)
            watch.evaluate(loss=found)
    return found


def frozen_layer_by_rate(session: Session) -> float:
    """The group of the hidden layers got the rate 0."""
    pick = begin(session, 25)
    task = waves()
    model = mlp(8, pick.choice([24, 28, 32]), 24, 1, activation=nn.Tanh)
    rate = session.lr(mildly(pick, 0.01))
    optimizer = torch.optim.Adam(
        [
            {"params": model[:-1].parameters(), "lr": rate if session.fixed else 0.0},
            {"params": model[-1].parameters(), "lr": rate},
        ]
    )
    loader = task.loader(64)
    with session.watch(model, optimizer) as watch:
        for _ in range(5):
            for points, values in loader:
                optimizer.zero_grad()
                loss = functional.mse_loss(model(points), values)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            found = validate(model, task, functional.mse_loss)
            watch.evaluate(loss=found)
    return found


# resuming


def optimizer_state_lost_mlp(session: Session) -> float:
    """The checkpoint holds the weights only: Adam's moments start anew, and its first steps are far too long."""
    pick = begin(session, 26)
    task = waves()
    width, rate = pick.choice([160, 192]), session.lr(mildly(pick, 0.02))
    model = mlp(8, width, 128, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    with session.watch(model, optimizer) as watch:
        for _ in range(5):
            for points, values in watch.data(task.batches(64, 60)):
                optimizer.zero_grad()
                loss = functional.mse_loss(model(points), values)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            watch.evaluate(loss=validate(model, task, functional.mse_loss))
        saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "watch": watch.state_dict()}
    model = mlp(8, width, 128, 1)
    model.load_state_dict(saved["model"])
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    if session.fixed:
        optimizer.load_state_dict(saved["optimizer"])
    losses = []
    with session.watch(model, optimizer) as watch:
        watch.load_state_dict(saved["watch"])
        for _ in range(16):
            for points, values in watch.data(task.batches(64, 5)):
                optimizer.zero_grad()
                loss = functional.mse_loss(model(points), values)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            losses.append(validate(model, task, functional.mse_loss))
            watch.evaluate(loss=losses[-1])
    return losses[0]


# healthy


def healthy_accumulation(session: Session) -> float:
    pick = begin(session, 40)
    task = clusters(8192)
    model = mlp(16, pick.choice([48, 64, 80]), 48, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(mildly(pick, 0.4)), momentum=0.8)
    num_micro = pick.choice([2, 4])
    loader = task.loader(32)
    with session.watch(model, optimizer) as watch:
        for _ in range(3):
            for i, (points, labels) in enumerate(watch.data(loader)):
                loss = functional.cross_entropy(model(points), labels)
                (loss / num_micro).backward()
                if (i + 1) % num_micro == 0:
                    optimizer.step()
                    optimizer.zero_grad()
                watch.step(loss)
            found = validate(model, task)
            watch.evaluate(loss=found, metrics={"accuracy": accuracy(model, task)})
    return found


def healthy_sum_loss(session: Session) -> float:
    """Summed over the batch, with a rate that suits it."""
    pick = begin(session, 41)
    task = clusters()
    model = mlp(16, pick.choice([48, 64, 80]), 48, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(mildly(pick, 0.1)) / 64, momentum=0.9)
    loader = task.loader(64)
    with session.watch(model, optimizer) as watch:
        for _ in range(5):
            for points, labels in loader:
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(points), labels, reduction="sum")
                loss.backward()
                optimizer.step()
                watch.step(loss)
            found = validate(model, task)
            watch.evaluate(loss=found)
    return found


def healthy_frozen_embedding(session: Session) -> float:
    """Word vectors that come from elsewhere and are to stay."""
    pick = begin(session, 42)
    task = chains()
    model = Recurrent(20, width=pick.choice([40, 48]), embedding=24)
    model.embedding.weight.requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=session.lr(mildly(pick, 8e-3)))
    loader = task.loader(32)
    with session.watch(model, optimizer) as watch:
        for _ in range(5):
            for tokens, following in loader:
                optimizer.zero_grad()
                loss = token_loss(model(tokens), following)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            found = validate(model, task, token_loss)
            watch.evaluate(loss=found)
    return found


class Bootstrap(nn.Module):
    """An online network that predicts what a slowly following copy of it makes of another view."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.online = mlp(16, width, 16)
        self.predictor = mlp(16, width, 16)
        self.target = copy.deepcopy(self.online).requires_grad_(False)

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        guess = functional.normalize(self.predictor(self.online(one)), dim=-1)
        with torch.no_grad():
            wanted = functional.normalize(self.target(other), dim=-1)
        return (guess - wanted.detach()).square().sum(-1).mean()

    @torch.no_grad()
    def follow(self, pace: float) -> None:
        for ours, theirs in zip(self.target.parameters(), self.online.parameters(), strict=True):
            ours.lerp_(theirs, pace)


def healthy_target_network(session: Session) -> float:
    pick = begin(session, 43)
    task = clusters(apart=1.2)
    model = Bootstrap(pick.choice([48, 64]))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=session.lr(mildly(pick, 2e-3)))
    with session.watch(model, optimizer) as watch:
        for _ in range(5):
            for points, _ in watch.data(task.loader(64)):
                views = points + 0.3 * torch.randn(2, *points.shape)
                optimizer.zero_grad()
                loss = model(views[0], views[1])
                loss.backward()
                optimizer.step()
                model.follow(0.02)
                watch.step(loss)
            with torch.no_grad():
                views = task.val_inputs + 0.3 * torch.randn(2, *task.val_inputs.shape)
                found = float(model(views[0], views[1]))
            watch.evaluate(loss=found)
    return found


def healthy_frozen_batchnorm(session: Session) -> float:
    """Fine-tuning with the batch norms, and only they, in evaluation mode on purpose."""
    pick = begin(session, 44)
    old, new = pictures(), pictures(classes=5)
    model = ConvNet(5, width=pick.choice([10, 12, 16]), norm=nn.BatchNorm2d)
    before = torch.optim.Adam(model.parameters(), lr=3e-3)
    for shown, labels in old.batches(32, 100):
        before.zero_grad()
        functional.cross_entropy(model(shown), labels).backward()
        before.step()
    model.head = nn.Linear(model.head.in_features, 5)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(mildly(pick, 2e-3)))
    loader = new.loader(32)
    with session.watch(model, optimizer) as watch:
        for _ in range(4):
            model.train()
            for module in model.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.eval()
            for shown, labels in watch.data(loader):
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(shown), labels)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            found = validate(model, new)
            watch.evaluate(loss=found)
    return found


def healthy_checkpointing(session: Session) -> float:
    """Blocks are computed again in the backward pass."""
    pick = begin(session, 45)
    task = chains(1024)
    model = Transformer(20, 20, width=pick.choice([32, 40]))
    for block in model.blocks:
        plain = block.forward
        block.forward = lambda x, plain=plain: checkpoint(plain, x, use_reentrant=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=session.lr(mildly(pick, 3e-3)))
    loader = task.loader(32)
    with session.watch(model, optimizer) as watch:
        for _ in range(5):
            for tokens, following in loader:
                optimizer.zero_grad()
                loss = token_loss(model(tokens), following)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            found = validate(model, task, token_loss)
            watch.evaluate(loss=found)
    return found


def healthy_two_optimizers(session: Session) -> float:
    """Encoder and head take turns, each with an optimiser of its own."""
    pick = begin(session, 46)
    task = waves()
    model = TwoPart(mlp(8, pick.choice([48, 64]), 32, activation=nn.Tanh), nn.Linear(32, 1))
    optimizers = {
        "encoder": torch.optim.Adam(model.encoder.parameters(), lr=session.lr(mildly(pick, 5e-3))),
        "head": torch.optim.SGD(model.head.parameters(), lr=session.lr(0.02), momentum=0.9),
    }
    step = 0
    with session.watch(model, optimizers) as watch:
        for _ in range(6):
            for points, values in watch.data(task.loader(64)):
                turn = optimizers["head" if step % 3 == 2 else "encoder"]
                model.zero_grad()
                loss = functional.mse_loss(model(points), values)
                loss.backward()
                turn.step()
                watch.step(loss)
                step += 1
            found = validate(model, task, functional.mse_loss)
            watch.evaluate(loss=found)
    return found


def healthy_uneven_batches(session: Session) -> float:
    """The last batch of an epoch has a handful of examples, and lengths differ from batch to batch."""
    pick = begin(session, 47)
    task = chains(1000 + session.seed)
    model = Recurrent(20, width=pick.choice([32, 40, 48]))
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(mildly(pick, 8e-3)))
    loader = task.loader(32, drop_last=False)
    with session.watch(model, optimizer) as watch:
        for _ in range(8):
            for tokens, following in watch.data(loader):
                length = pick.randint(8, 20)
                optimizer.zero_grad()
                loss = token_loss(model(tokens[:, :length]), following[:, :length])
                loss.backward()
                optimizer.step()
                watch.step(loss)
            found = validate(model, task, token_loss)
            watch.evaluate(loss=found)
    return found
