"""Nets that are not stacks of linear layers: kernels, splines, coordinates, nets that make nets."""

import math

import torch
from benchmarks.faults.wild import scores
from benchmarks.faults.wild.kind import Score, kind
from benchmarks.faults.wild.knobs import Knobs
from torch import nn
from torch.nn import functional as F


@kind(steps=250, has="inputs targets batch order")
def radial_basis(knobs: Knobs) -> Score:
    class RBF(nn.Module):
        def __init__(self, centres):
            super().__init__()
            self.centres = nn.Parameter(centres)
            self.log_width = nn.Parameter(torch.zeros(len(centres)))
            self.out = nn.Linear(len(centres), 1)

        def forward(self, x):
            d2 = torch.cdist(x, self.centres).square()
            return self.out(torch.exp(-d2 * torch.exp(self.log_width))).squeeze(1)

    x = torch.rand(2500, 2) * 4 - 2
    y = torch.sin(2 * x[:, 0]) * torch.cos(x[:, 1]) + 0.05 * torch.randn(2500)
    x = knobs.inputs(x)
    train, test = x[:2000], x[2000:]
    y_train, y_test = knobs.targets(y[:2000]), y[2000:]
    model = knobs.net(RBF(torch.rand(40, 2) * 4 - 2))
    opt = knobs.optimizer(torch.optim.Adam(model.parameters(), lr=knobs.rate(0.02)))
    w = knobs.watch(model, opt)
    i = 0
    while i < knobs.steps:
        for b in knobs.order(2000).split(knobs.size(80)):
            if i == knobs.steps:
                break
            i += 1
            loss = nn.functional.l1_loss(model(knobs.feed(train[b])), y_train[b])
            opt.zero_grad()
            loss.backward()
            opt.step()
            w.step(loss)
    return lambda: scores.explained(model(test).detach(), y_test)


@kind(steps=250, has="inputs batch targets")
def splines_on_edges(knobs: Knobs) -> Score:
    """Like KAN: each edge has a curve of its own, of bumps on a grid."""

    class Edges(nn.Module):
        def __init__(self, d_in, d_out, bumps=8):
            super().__init__()
            self.register_buffer("grid", torch.linspace(-2, 2, bumps))
            self.coef = nn.Parameter(torch.randn(d_in, bumps, d_out) * 0.1)
            self.base = nn.Linear(d_in, d_out)

        def forward(self, x):
            basis = torch.exp(-((x[..., None] - self.grid) * 2).square())
            return self.base(F.silu(x)) + torch.einsum("bik,iko->bo", basis, self.coef)

    x = torch.rand(3000, 4) * 2 - 1
    y = torch.exp(torch.sin(math.pi * x[:, 0]) + x[:, 1] ** 2) / 2 + x[:, 2] * x[:, 3]
    x = knobs.inputs(x)
    target = knobs.targets(y[:2500, None])
    kan = knobs.net(nn.Sequential(Edges(4, 8), Edges(8, 1)))
    optim = knobs.optimizer(torch.optim.AdamW(kan.parameters(), lr=knobs.rate(1e-2), weight_decay=1e-4))
    w = knobs.watch(kan, optim)
    for _ in range(knobs.steps):
        pick = knobs.pick(2500, knobs.size(100))
        optim.zero_grad()
        loss = F.mse_loss(kan(knobs.feed(x[pick])), target[pick])
        loss.backward()
        optim.step()
        w.step(loss)
    return lambda: scores.explained(kan(x[2500:]).detach(), y[2500:, None])


@kind(steps=300, has="batch", goal=0.4)
def coordinates(knobs: Knobs) -> Score:
    """SIREN: a picture as a function of where one looks."""

    class Sine(nn.Module):
        def __init__(self, d_in, d_out, omega=1.0, first=False):
            super().__init__()
            self.linear, self.omega = nn.Linear(d_in, d_out), omega
            bound = 1 / d_in if first else math.sqrt(6 / d_in) / omega
            nn.init.uniform_(self.linear.weight, -bound, bound)

        def forward(self, x):
            return torch.sin(self.omega * self.linear(x))

    axis = torch.linspace(-1, 1, 48)
    at = torch.cartesian_prod(axis, axis)
    picture = torch.sin(6 * at[:, 0] + 3 * at[:, 1] ** 2) * torch.exp(-(at[:, 1] ** 2)) + (at.norm(dim=1) < 0.5).float()
    held = torch.rand(len(at)) < 0.2
    known, hidden = at[~held], at[held]
    net = knobs.net(nn.Sequential(Sine(2, 64, 10, first=True), Sine(64, 64, 10), nn.Linear(64, 1)))
    opt = knobs.optimizer(torch.optim.Adam(net.parameters(), lr=knobs.rate(1e-3)))
    w = knobs.watch(net, opt)
    for _ in range(knobs.steps):
        i = knobs.pick(len(known), knobs.size(256))
        loss = ((net(known[i]).squeeze(1) - picture[~held][i]) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        w.step(loss)
    return lambda: scores.explained(net(hidden).squeeze(1).detach(), picture[held])


@kind(steps=300, has="inputs relu")
def hypernetwork(knobs: Knobs) -> Score:
    """A net that writes the weights of another, one for each task."""
    hyper = knobs.net(nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 49)))
    opt = knobs.optimizer(torch.optim.Adam(hyper.parameters(), lr=knobs.rate(3e-3)))

    def tasks(n):
        c = torch.rand(n, 3) * 2 - 1
        x = torch.rand(n, 20, 1) * 4 - 2
        y = c[:, :1, None] * torch.sin(2 * x) + c[:, 1:2, None] * x + c[:, 2:, None]
        return knobs.inputs(c), x, y

    def main_net(weights, x):
        w1, b1, w2, b2 = weights.split([16, 16, 16, 1], 1)
        h = torch.tanh(x * w1[:, None] + b1[:, None])
        return (h * w2[:, None]).sum(-1, keepdim=True) + b2[:, None]

    watch = knobs.watch(hyper, opt)
    for _ in range(knobs.steps):
        c, x, y = tasks(32)
        loss = F.mse_loss(main_net(hyper(knobs.feed(c)), x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        watch.step(loss)

    @torch.no_grad()
    def score():
        c, x, y = tasks(200)
        return scores.explained(main_net(hyper(c), x).flatten()[:, None], y.flatten()[:, None])

    return score


@kind(steps=300, has="inputs targets batch sgd")
def hinge_on_features(knobs: Knobs) -> Score:
    """A support-vector machine on random Fourier features, averaged weights and all."""
    angle, radius = torch.rand(3000) * 6.28, torch.rand(3000) * 3
    label = ((radius * 1.2).floor() % 2).long()
    x = knobs.inputs(torch.stack([radius * angle.cos(), radius * angle.sin()], 1))
    omega, offset = torch.randn(2, 200) * 1.5, torch.rand(200) * 6.28
    features = lambda x: torch.cos(x @ omega + offset) * 0.1  # noqa: E731
    sign = knobs.targets((2 * label[:2500] - 1).float())
    svm = knobs.net(nn.Linear(200, 1))
    opt = knobs.optimizer(torch.optim.SGD(svm.parameters(), lr=knobs.rate(6.0), weight_decay=1e-5))
    w = knobs.watch(svm, opt)
    for _ in range(knobs.steps):
        b = knobs.pick(2500, knobs.size(64))
        margin = sign[b] * svm(features(knobs.feed(x[b]))).squeeze(1)
        loss = F.relu(1 - margin).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        w.step(loss)
    return lambda: scores.accuracy((svm(features(x[2500:])).squeeze(1) > 0).long(), label[2500:])


@kind(steps=300, has="", goal=0.4)
def associative_memory(knobs: Knobs) -> Score:
    """A modern Hopfield net whose stored patterns are learned; it mends what is half erased."""

    class Hopfield(nn.Module):
        def __init__(self, dim=32, slots=48):
            super().__init__()
            self.keys = nn.Parameter(torch.randn(slots, dim) * 0.2)
            self.log_beta = nn.Parameter(torch.zeros(()))

        def forward(self, x, rounds=3):
            for _ in range(rounds):
                x = torch.softmax(self.log_beta.exp() * x @ self.keys.T, -1) @ self.keys
            return x

    stored = torch.sign(torch.randn(20, 32))

    def spoil(n):
        clean = stored[torch.randint(20, (n,))]
        return torch.where(torch.rand(n, 32) < 0.35, torch.zeros(()), clean), clean

    memory = knobs.net(Hopfield())
    opt = knobs.optimizer(torch.optim.Adam(memory.parameters(), lr=knobs.rate(0.12)))
    w = knobs.watch(memory, opt)
    for _ in range(knobs.steps):
        half, clean = spoil(64)
        opt.zero_grad()
        loss = (memory(half) - clean).square().sum(1).mean()
        loss.backward()
        opt.step()
        w.step(loss)

    @torch.no_grad()
    def score():
        half, clean = spoil(500)
        return scores.explained(memory(half), clean)

    return score
