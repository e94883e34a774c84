"""Trainings that learn too much, too little, or have nothing to learn."""

from dataclasses import replace

import torch
from benchmarks.faults import tasks
from benchmarks.faults.models import ResidualMlp, cnn, linears, mlp
from benchmarks.faults.scenario import Scenario, Session
from torch import nn
from torch.nn import functional


def _flip(task: tasks.Task, share: float, classes: int) -> tasks.Task:
    """The same task with a share of its training labels drawn at random."""
    draw = torch.Generator().manual_seed(7000 + task.seed)
    wrong = torch.rand(len(task.targets), generator=draw) < share
    random = torch.randint(classes, task.targets.shape, generator=draw)
    return replace(task, targets=torch.where(wrong, random, task.targets))


def mlp_overfitting(session: Session) -> float:
    """A wide net and a few dozen noisy examples; the twin has enough of them, for as many steps."""
    draw = tasks.begin(session)
    task = tasks.mixture(session.seed, num=6400, dim=20, classes=4, spread=1.3)
    few = draw.choice([160, 200])
    model = mlp([20, 128, 128, 4])
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(2e-3))
    if not session.fixed:
        task = task.fewer(few)
    epochs, batch = (4, 64) if session.fixed else (80, 32)
    return tasks.fit(session, model, optimizer, task, functional.cross_entropy, epochs=epochs, batch=batch)


def cnn_overfitting(session: Session) -> float:
    """The same on a hundred images."""
    draw = tasks.begin(session)
    task = tasks.shapes(session.seed, num=4800, noise=0.5)
    few = draw.choice([128, 160])
    model = cnn(12)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(4e-3))
    if not session.fixed:
        task = task.fewer(few)
    epochs, batch = (5, 64) if session.fixed else (75, 32)
    return tasks.fit(
        session, model, optimizer, task, functional.cross_entropy, epochs=epochs, batch=batch, tell_data=False
    )


def mlp_missing_regularisation(session: Session) -> float:
    """Many useless features, noisy targets, and neither decay nor dropout."""
    draw = tasks.begin(session)
    task = tasks.regression(session.seed, num=320, dim=24, noise=0.6, hidden=3)
    model = mlp([24, 96, draw.choice([64, 96]), 1], dropout=session.dropout(0.5 if session.fixed else 0.0))
    decay = session.weight_decay(0.05 if session.fixed else 0.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(2e-3), weight_decay=decay)
    return tasks.fit(session, model, optimizer, task, functional.mse_loss, epochs=45, batch=32)


def mlp_underfitting(session: Session) -> float:
    """So much dropout that little gets through."""
    draw = tasks.begin(session)
    task = tasks.mixture(session.seed, num=4608, dim=16, classes=5)
    dropout = session.dropout(0.1 if session.fixed else draw.uniform(0.74, 0.78))
    model = mlp([16, 48, 48, 48, 5], dropout=dropout)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(2e-3))
    return tasks.fit(session, model, optimizer, task, functional.cross_entropy, epochs=5, batch=64)


def linear_insufficient_capacity(session: Session) -> float:
    """A linear classifier for classes that no line separates."""
    draw = tasks.begin(session)
    task = tasks.mixture(session.seed, num=3072, dim=5, classes=4, spread=0.2, centres=draw.choice([7, 8]))
    model = mlp([5, 96, 64, 4]) if session.fixed else mlp([5, 4])
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(8e-3))
    return tasks.fit(session, model, optimizer, task, functional.cross_entropy, epochs=10, batch=64)


def mlp_insufficient_capacity(session: Session) -> float:
    """One hidden unit a layer for a function that takes dozens: it finds the linear part only."""
    draw = tasks.begin(session)
    generator = torch.Generator().manual_seed(8200 + session.seed)
    inputs = torch.randn(2560, 5, generator=generator)
    a, b, c, d, e = inputs.unbind(1)
    targets = (a * b + c * d + 0.9 * e)[:, None] / 2.81**0.5
    targets += 0.05 * torch.randn(2560, 1, generator=generator)
    task = tasks.Task(inputs[:2048], targets[:2048], inputs[2048:], targets[2048:], session.seed)
    width = draw.choice([48, 64]) if session.fixed else 1
    model = mlp([5, width, width, 1], nn.Tanh)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(5e-3))
    return tasks.fit(session, model, optimizer, task, functional.mse_loss, epochs=14, batch=64, tell_data=False)


def mlp_weight_decay_too_strong(session: Session) -> float:
    """Decay that takes off more than the gradient puts on."""
    draw = tasks.begin(session)
    task = tasks.mixture(session.seed, num=4608, dim=16, classes=4)
    model = mlp([16, draw.choice([64, 80]), 64, 4])
    decay = session.weight_decay(1e-2 if session.fixed else draw.uniform(18, 30))
    optimizer = torch.optim.AdamW(model.parameters(), lr=session.lr(3e-3), weight_decay=decay)
    return tasks.fit(session, model, optimizer, task, functional.cross_entropy, epochs=5, batch=64)


def cnn_weight_decay_too_strong(session: Session) -> float:
    """The same as a penalty under momentum SGD, on images."""
    draw = tasks.begin(session)
    task = tasks.shapes(session.seed, num=1792)
    model = cnn(draw.choice([8, 10]), norm=True)
    decay = session.weight_decay(1e-4 if session.fixed else draw.uniform(0.5, 0.7))
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(0.015), momentum=0.9, weight_decay=decay)
    return tasks.fit(session, model, optimizer, task, functional.cross_entropy, epochs=10, batch=64, tell_data=False)


def mlp_plateau(session: Session) -> float:
    """Features that are nearly copies of each other: the loss falls fast along one direction, then hardly at all."""
    draw = tasks.begin(session)
    dim, closeness = draw.choice([20, 24]), draw.uniform(0.995, 0.997)
    generator = torch.Generator().manual_seed(8000 + session.seed)
    shared = torch.randn(2560, 1, generator=generator)
    own = torch.randn(2560, dim, generator=generator)
    targets = (own @ torch.randn(dim, 1, generator=generator)) / dim**0.5 + 0.7 * shared
    inputs = closeness**0.5 * shared + (1 - closeness) ** 0.5 * own
    if session.fixed:  # the same features, whitened
        variances, directions = torch.linalg.eigh(inputs.T @ inputs / len(inputs))
        inputs = inputs @ directions / variances.sqrt()
    task = tasks.Task(inputs[:2048], targets[:2048], inputs[2048:], targets[2048:], session.seed)
    model = mlp([dim, 48, 1], nn.Tanh)
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(3e-3), momentum=0.9)
    return tasks.fit(session, model, optimizer, task, functional.mse_loss, epochs=12, batch=64)


def linear_plateau(session: Session) -> float:
    """Started beside the saddle at the origin of a deep linear net, it stays there; the twin starts away from it."""
    draw = tasks.begin(session)
    generator = torch.Generator().manual_seed(8100 + session.seed)
    inputs = torch.randn(2560, 10, generator=generator)
    targets = inputs @ torch.randn(10, 3, generator=generator) / 10**0.5
    targets += 0.05 * torch.randn(2560, 3, generator=generator)
    task = tasks.Task(inputs[:2048], targets[:2048], inputs[2048:], targets[2048:], session.seed)
    model = nn.Sequential(*(nn.Linear(n, m, bias=False) for n, m in [(10, 32), (32, 32), (32, 32), (32, 3)]))
    for layer in linears(model):
        nn.init.orthogonal_(layer.weight, gain=1.0 if session.fixed else draw.uniform(0.12, 0.16))
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(0.01), momentum=0.9)
    return tasks.fit(session, model, optimizer, task, functional.mse_loss, epochs=10, batch=64, tell_data=False)


def mlp_label_noise(session: Session) -> float:
    """Two fifths of the training labels or more are drawn at random; those of the validation set are right."""
    draw = tasks.begin(session)
    task = tasks.mixture(session.seed, num=1600, dim=16, classes=4)
    share = draw.uniform(0.4, 0.55)
    if not session.fixed:
        task = _flip(task, share, 4)
    model = mlp([16, 96, 96, 4])
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(2e-3))
    loader = torch.utils.data.DataLoader(task.dataset(), batch_size=50, shuffle=True)
    with session.watch(model, optimizer) as watch:
        for _ in range(15):
            for inputs, targets in watch.data(loader):
                loss = functional.cross_entropy(model(inputs), targets)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                watch.step(loss)
            quality = tasks.validate(model, task, functional.cross_entropy)
            watch.evaluate(loss=quality, metrics={"accuracy": tasks.accuracy(model, task)})
            watch.epoch()
    return quality


def cnn_label_noise(session: Session) -> float:
    """The same on images, with a small model that cannot learn the labels by heart."""
    draw = tasks.begin(session)
    task = tasks.shapes(session.seed, num=2304)
    share = draw.uniform(0.4, 0.5)
    if not session.fixed:
        task = _flip(task, share, 4)
    model = cnn(6, norm=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(4e-3))
    return tasks.fit(session, model, optimizer, task, functional.cross_entropy, epochs=9, batch=64, tell_data=False)


def _shuffled(task: tasks.Task) -> tasks.Task:
    """Inputs and targets joined on the wrong key, in both sets."""
    draw = torch.Generator().manual_seed(9000 + task.seed)
    return replace(
        task,
        targets=task.targets[torch.randperm(len(task.targets), generator=draw)],
        val_targets=task.val_targets[torch.randperm(len(task.val_targets), generator=draw)],
    )


def mlp_no_signal(session: Session) -> float:
    """Labels that have nothing to do with their inputs, more of them than the model can learn by heart."""
    draw = tasks.begin(session)
    task = tasks.mixture(session.seed, num=19200, dim=16, classes=4)
    if not session.fixed:
        task = _shuffled(task)
    model = mlp([16, draw.choice([32, 48]), 32, 4])
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(2e-3))
    return tasks.fit(session, model, optimizer, task, functional.cross_entropy, epochs=2, batch=96)


def cnn_no_signal(session: Session) -> float:
    """The same on images."""
    draw = tasks.begin(session)
    task = tasks.shapes(session.seed, num=6400)
    if not session.fixed:
        task = _shuffled(task)
    model = cnn(draw.choice([6, 8]), norm=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(0.02), momentum=0.9)
    return tasks.fit(session, model, optimizer, task, functional.cross_entropy, epochs=4, batch=64, tell_data=False)


def resmlp_no_signal(session: Session) -> float:
    """A regression on targets in another order than the inputs."""
    draw = tasks.begin(session)
    task = tasks.regression(session.seed, num=12800, dim=10)
    if not session.fixed:
        task = _shuffled(task)
    model = ResidualMlp(10, draw.choice([24, 32]), 2, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(2e-3))
    return tasks.fit(session, model, optimizer, task, functional.mse_loss, epochs=2, batch=64)


_TOO_LITTLE = ("underfitting", "insufficient-capacity")
_CHECKED = ("inspect-batch",)

SCENARIOS = [
    Scenario("mlp-overfitting", "overfitting", mlp_overfitting, ("missing-regularisation",), turns=True),
    Scenario("cnn-overfitting", "overfitting", cnn_overfitting, ("missing-regularisation",), turns=True),
    Scenario(
        "mlp-missing-regularisation", "missing-regularisation", mlp_missing_regularisation, ("overfitting",),
        turns=True, repairable=True,
    ),
    Scenario("mlp-underfitting-dropout", "underfitting", mlp_underfitting, _TOO_LITTLE[1:]),
    Scenario(
        "linear-insufficient-capacity", "insufficient-capacity", linear_insufficient_capacity, _TOO_LITTLE[:1],
        cures=("more-capacity",),
    ),
    Scenario(
        "mlp-insufficient-capacity", "insufficient-capacity", mlp_insufficient_capacity, _TOO_LITTLE[:1],
        cures=("more-capacity",),
    ),
    Scenario(
        "mlp-weight-decay-too-strong", "weight-decay-too-strong", mlp_weight_decay_too_strong, repairable=True
    ),
    Scenario(
        "cnn-weight-decay-too-strong", "weight-decay-too-strong", cnn_weight_decay_too_strong, repairable=True
    ),
    Scenario("mlp-plateau-ill-conditioned", "plateau", mlp_plateau, ("lr-too-low", "underfitting")),
    Scenario(
        "linear-plateau-at-saddle", "plateau", linear_plateau, ("bad-initialisation", "vanishing-gradients"),
        cures=("reinitialise",),
    ),
    Scenario("mlp-label-noise", "label-noise", mlp_label_noise, ("overfitting", "missing-regularisation")),
    Scenario("cnn-label-noise", "label-noise", cnn_label_noise),
    Scenario("mlp-no-learnable-signal", "no-learnable-signal", mlp_no_signal, cures=_CHECKED),
    Scenario("cnn-no-learnable-signal", "no-learnable-signal", cnn_no_signal, cures=_CHECKED),
    Scenario("resmlp-no-learnable-signal", "no-learnable-signal", resmlp_no_signal, cures=_CHECKED),
]  # fmt: skip
