"""Trainings whose initialisation, activations or depth are wrong: signals that die, grow or stay alike."""

import torch
from benchmarks.faults import tasks
from benchmarks.faults.models import Recurrent, ResidualMlp, linears, mlp
from benchmarks.faults.scenario import Scenario, Session
from torch import Tensor, nn
from torch.nn import functional

ACCIDENT_STEP = 150


def mlp_vanishing_sigmoid(session: Session) -> float:
    """Ten sigmoid layers; the twin has rectifiers, started for them."""
    draw = tasks.begin(session)
    task = tasks.mixture(session.seed, num=4608, dim=16, classes=4)
    depth = draw.choice([8, 10])
    model = mlp([16, *[48] * depth, 4], nn.ReLU if session.fixed else nn.Sigmoid)
    for layer in linears(model)[:-1]:
        if session.fixed:
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        else:
            nn.init.xavier_normal_(layer.weight)
        nn.init.zeros_(layer.bias)
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(0.02), momentum=0.9)
    return tasks.fit(session, model, optimizer, task, functional.cross_entropy, epochs=5, batch=64)


def mlp_vanishing_tanh(session: Session) -> float:
    """A deep tanh net under small weights, as PyTorch draws them; the twin has skips and normalisation."""
    draw = tasks.begin(session)
    task = tasks.regression(session.seed, num=2048, dim=10)
    depth = draw.choice([20, 22])
    if session.fixed:
        model: nn.Module = ResidualMlp(10, 32, depth // 4, 1)
    else:
        model = mlp([10, *[32] * depth, 1], nn.Tanh, norm=session.does("add-layernorm"))
    if session.does("reinitialise"):
        for layer in linears(model):
            nn.init.xavier_normal_(layer.weight, gain=nn.init.calculate_gain("tanh"))
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(0.01), momentum=0.9)
    return tasks.fit(session, model, optimizer, task, functional.mse_loss, epochs=10, batch=64, tell_data=False)


def rnn_long_sequence(session: Session) -> float:
    """What matters stands at the beginning of sequences far longer than a plain recurrent net can remember."""
    draw = tasks.begin(session)
    length = 5 if session.fixed else draw.choice([70, 90])
    task = tasks.recall(session.seed, num=1536, length=length, symbols=5)
    model = Recurrent(nn.RNN, 12, draw.choice([32, 40]), 5, symbols=5)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(2e-3))
    return tasks.fit(
        session, model, optimizer, task, functional.cross_entropy, epochs=10, batch=64, clip=1.0, tell_data=False
    )


def mlp_gain_drift(session: Session) -> float:
    """The penalty on the weights has the wrong sign, so that every layer's gain grows by a little each step."""
    draw = tasks.begin(session)
    task = tasks.regression(session.seed, num=2048, dim=10)
    model = mlp([10, *[32] * draw.choice([6, 7]), 1])
    for layer in linears(model):
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(5e-3), momentum=0.9)
    strength = draw.uniform(0.02, 0.03) * (1 if session.fixed else -1)
    loader = task.batches(64)
    with session.watch(model, optimizer) as watch:
        for _ in range(12):
            for inputs, targets in watch.data(loader):
                error = functional.mse_loss(model(inputs), targets)
                penalty = sum((layer.weight.square().sum() for layer in linears(model)), torch.zeros(()))
                loss = error + strength * penalty
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                watch.step(error)
            quality = tasks.validate(model, task, functional.mse_loss)
            watch.evaluate(loss=quality)
            watch.epoch()
    return quality


def mlp_init_too_large(session: Session) -> float:
    """Weights drawn from a unit normal whatever the width."""
    draw = tasks.begin(session)
    task = tasks.mixture(session.seed, num=4608, dim=16, classes=4)
    width = draw.choice([64, 80])
    model = mlp([16, width, width, width, 4])
    if not session.fixed:
        for layer in linears(model):
            nn.init.normal_(layer.weight, std=1.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(2e-3))
    return tasks.fit(session, model, optimizer, task, functional.cross_entropy, epochs=4, batch=64)


def mlp_init_too_small(session: Session) -> float:
    """Weights a tenth of what lets the signal through, in a deep rectified net."""
    draw = tasks.begin(session)
    task = tasks.regression(session.seed, num=2048, dim=10)
    width = draw.choice([48, 64])
    model = mlp([10, width, width, width, width, width, 1])
    std = draw.uniform(0.008, 0.012)
    for layer in linears(model):
        if session.fixed:
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        else:
            nn.init.normal_(layer.weight, std=std)
        nn.init.zeros_(layer.bias)
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(0.01), momentum=0.9)
    return tasks.fit(session, model, optimizer, task, functional.mse_loss, epochs=10, batch=64, tell_data=False)


def mlp_symmetric(session: Session) -> float:
    """All weights of a layer start at one number, so that its units stay one unit."""
    draw = tasks.begin(session)
    task = tasks.mixture(session.seed, num=4608, dim=12, classes=4)
    model = mlp([12, draw.choice([48, 64]), 48, 4], nn.Tanh)
    if not session.fixed:
        for layer in linears(model):
            nn.init.constant_(layer.weight, draw.uniform(0.02, 0.08))
            nn.init.zeros_(layer.bias)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(3e-3))
    return tasks.fit(session, model, optimizer, task, functional.cross_entropy, epochs=5, batch=64, tell_data=False)


def mlp_dead_from_bias(session: Session) -> float:
    """Hidden biases start far below zero: nearly no unit ever fires."""
    draw = tasks.begin(session)
    task = tasks.mixture(session.seed, num=4608, dim=16, classes=4)
    model = mlp([16, 96, draw.choice([64, 96]), 4])
    if not session.fixed:
        for layer in linears(model)[:-1]:
            nn.init.constant_(layer.bias, -draw.uniform(1.6, 2.0))
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(0.05), momentum=0.9)
    return tasks.fit(session, model, optimizer, task, functional.cross_entropy, epochs=5, batch=64, tell_data=False)


def mlp_dead_after_accident(session: Session) -> float:
    """The hidden biases are overwritten in mid-run by some far below zero: most rectifiers fall silent."""
    draw = tasks.begin(session)
    task = tasks.regression(session.seed, num=2304, dim=10)
    model = mlp([10, 64, 64, draw.choice([32, 48]), 1])
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(0.02), momentum=0.9)
    loader = task.batches(64)
    bias = -draw.uniform(3, 4)
    step = 0
    with session.watch(model, optimizer) as watch:
        for _ in range(10):
            for inputs, targets in watch.data(loader):
                step += 1
                if not session.fixed and step == ACCIDENT_STEP:
                    for layer in linears(model)[:-1]:
                        nn.init.constant_(layer.bias, bias)
                loss = functional.mse_loss(model(inputs), targets)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                watch.step(loss)
            quality = tasks.validate(model, task, functional.mse_loss)
            watch.evaluate(loss=quality)
            watch.epoch()
    return quality


class Steep(nn.Module):
    """tanh of a multiple of its input."""

    def __init__(self, slope: float) -> None:
        super().__init__()
        self.slope = slope
        self.tanh = nn.Tanh()

    def forward(self, x: Tensor) -> Tensor:
        return self.tanh(self.slope * x)


def mlp_saturated(session: Session) -> float:
    """Activations so steep that nearly all units sit at ±1."""
    draw = tasks.begin(session)
    task = tasks.mixture(session.seed, num=4608, dim=16, classes=4)
    slope = 1.0 if session.fixed else draw.uniform(40, 60)
    model = mlp([16, 64, 64, 64, 4], lambda: Steep(slope))
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(0.02), momentum=0.9)
    return tasks.fit(session, model, optimizer, task, functional.cross_entropy, epochs=5, batch=64)


def mlp_saturated_sigmoid(session: Session) -> float:
    """Sigmoid units whose weights were drawn for one input where there are many: all are at 0 or 1."""
    draw = tasks.begin(session)
    task = tasks.regression(session.seed, num=2048, dim=12)
    model = mlp([12, 64, draw.choice([48, 64]), 1], nn.Sigmoid)
    for layer in linears(model)[:-1]:
        nn.init.normal_(layer.weight, std=0.3 if session.fixed else draw.uniform(6, 8))
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(4e-3))
    return tasks.fit(session, model, optimizer, task, functional.mse_loss, epochs=10, batch=64, tell_data=False)


def resmlp_activation_explosion(session: Session) -> float:
    """Skips without normalisation, each block doubling its input or more."""
    draw = tasks.begin(session)
    task = tasks.mixture(session.seed, num=4480, dim=16, classes=4)
    depth = draw.choice([10, 12])
    model = ResidualMlp(16, 40, depth, 4, norm=session.fixed or session.does("add-layernorm"))
    for block in model.blocks:
        nn.init.kaiming_normal_(block.up.weight)
        nn.init.kaiming_normal_(block.down.weight)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(1e-3))
    return tasks.fit(session, model, optimizer, task, functional.cross_entropy, epochs=4, batch=64, tell_data=False)


class TwoBranches(nn.Module):
    """The sum of a wide branch, amplified, and a deep one."""

    def __init__(self, dim: int, width: int, classes: int, amplifier: float) -> None:
        super().__init__()
        self.amplifier = amplifier
        self.wide = nn.Linear(dim, classes)
        self.deep = mlp([dim, width, width, classes])

    def forward(self, x: Tensor) -> Tensor:
        return self.amplifier * self.wide(x) + self.deep(x)


def mlp_gradient_imbalance(session: Session) -> float:
    """One branch is amplified: its gradient takes up the whole of the clipped norm, the others' share is nothing."""
    draw = tasks.begin(session)
    task = tasks.mixture(session.seed, num=4608, dim=16, classes=4)
    model = TwoBranches(16, draw.choice([48, 64]), 4, 1.0 if session.fixed else draw.uniform(80, 120))
    nn.init.zeros_(model.wide.weight)
    nn.init.zeros_(model.wide.bias)
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(0.05), momentum=0.9)
    return tasks.fit(session, model, optimizer, task, functional.cross_entropy, epochs=5, batch=64, clip=1.0)


_DRAWN_ANEW = ("reinitialise",)

SCENARIOS = [
    Scenario("mlp-vanishing-sigmoid", "vanishing-gradients", mlp_vanishing_sigmoid, repairable=True),
    Scenario(
        "mlp-vanishing-tanh", "vanishing-gradients", mlp_vanishing_tanh, repairable=True, cures=("add-residuals",)
    ),
    Scenario("rnn-long-sequence", "long-sequence", rnn_long_sequence, ("vanishing-gradients",)),
    Scenario("mlp-gain-drift", "gain-drift", mlp_gain_drift, ("exploding-gradients",), repairable=True),
    Scenario(
        "mlp-init-too-large", "bad-initialisation", mlp_init_too_large, ("activation-explosion",),
        cures=_DRAWN_ANEW,
    ),
    Scenario(
        "mlp-init-too-small", "bad-initialisation", mlp_init_too_small, ("vanishing-gradients",), cures=_DRAWN_ANEW
    ),
    Scenario("mlp-symmetric-init", "symmetric-initialisation", mlp_symmetric, cures=_DRAWN_ANEW),
    Scenario(
        "mlp-dead-from-bias", "dead-units", mlp_dead_from_bias, ("bad-initialisation",),
        repairable=True, cures=_DRAWN_ANEW,
    ),
    Scenario("mlp-dead-after-accident", "dead-units", mlp_dead_after_accident, onset=ACCIDENT_STEP),
    Scenario(
        "mlp-steep-tanh-saturated", "saturated-units", mlp_saturated, ("exploding-gradients", "bad-initialisation")
    ),
    Scenario(
        "mlp-sigmoid-saturated", "saturated-units", mlp_saturated_sigmoid, ("bad-initialisation",),
        cures=_DRAWN_ANEW,
    ),
    Scenario(
        "resmlp-activation-explosion", "activation-explosion", resmlp_activation_explosion,
        ("bad-initialisation", "exploding-gradients"), repairable=True, cures=("add-layernorm",),
    ),
    Scenario("mlp-gradient-imbalance", "gradient-imbalance", mlp_gradient_imbalance, ("lr-too-high",)),
]  # fmt: skip
