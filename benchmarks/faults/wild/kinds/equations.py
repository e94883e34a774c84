"""Equations: residuals, flows in time, fixed points."""

import math

import torch
from benchmarks.faults.wild import scores
from benchmarks.faults.wild.kind import Score, kind
from benchmarks.faults.wild.knobs import Knobs
from torch import nn


@kind(steps=300, has="batch", goal=0.3)
def physics_informed(knobs: Knobs) -> Score:
    """u'' = -π² sin(πx) - 4π² sin(2πx), u(±1) = 0, by the residual at random points."""
    net = knobs.net(nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)))
    exact = lambda x: torch.sin(math.pi * x) + torch.sin(2 * math.pi * x)  # noqa: E731
    force = lambda x: -(math.pi**2) * (torch.sin(math.pi * x) + 4 * torch.sin(2 * math.pi * x))  # noqa: E731
    opt = knobs.optimizer(torch.optim.Adam(net.parameters(), lr=knobs.rate(5e-3)))
    w = knobs.watch(net, opt)
    edge = torch.tensor([[-1.0], [1.0]])
    for _ in range(knobs.steps):
        x = (torch.rand(knobs.size(64), 1) * 2 - 1).requires_grad_()
        u = net(x)
        du = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
        ddu = torch.autograd.grad(du.sum(), x, create_graph=True)[0]
        residual, boundary = (ddu - force(x)).square().mean(), net(edge).square().mean()
        loss = residual + 100 * boundary
        opt.zero_grad()
        loss.backward()
        opt.step()
        w.step(loss)
    x = torch.linspace(-1, 1, 200)[:, None]
    return lambda: scores.explained(net(x).detach(), exact(x))


@kind(steps=250, has="clip", goal=0.4)
def euler_flow(knobs: Knobs) -> Score:
    """A neural differential equation, 20 steps of Euler, fitted to spirals."""

    class Field(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 48), nn.Tanh(), nn.Linear(48, 2))

        def forward(self, z):
            return self.net(z**3)

    turn = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])

    def paths(n):
        z, out = torch.rand(n, 2) * 2 - 1, []
        for _ in range(20):
            out.append(z)
            for _ in range(5):
                z = z + 0.01 * (z**3) @ turn * 3
        return torch.stack(out, 1)

    def integrate(field, z):
        out = [z]
        for _ in range(19):
            z = z + 0.05 * field(z)
            out.append(z)
        return torch.stack(out, 1)

    true, test = paths(600), paths(100)
    field = knobs.net(Field())
    opt = knobs.optimizer(torch.optim.Adam(field.parameters(), lr=knobs.rate(1e-2)))
    w = knobs.watch(field, opt)
    for _ in range(knobs.steps):
        batch = true[knobs.pick(600, 32)]
        loss = (integrate(field, batch[:, 0]) - batch).abs().mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(field.parameters(), knobs.clip(1.0))
        opt.step()
        w.step(loss)

    @torch.no_grad()
    def score():
        moved = (test - test[:, :1]).abs().mean()  # the trivial field stands still
        return scores.gained((integrate(field, test[:, 0]) - test).abs().mean(), moved)

    return score


@kind(steps=250, has="inputs batch softmax")
def equilibrium(knobs: Knobs) -> Score:
    """An implicit layer: a fixed point is sought without a graph, the last round with one."""

    class Implicit(nn.Module):
        def __init__(self, d=32):
            super().__init__()
            self.inject, self.hidden = nn.Linear(10, d), nn.Linear(d, d, bias=False)
            nn.init.orthogonal_(self.hidden.weight, gain=0.5)
            self.head = nn.Linear(d, 4)

        def forward(self, x):
            u, z = self.inject(x), torch.zeros(len(x), 32)
            with torch.no_grad():
                for _ in range(12):
                    z = torch.tanh(self.hidden(z) + u)
            for _ in range(2):
                z = torch.tanh(self.hidden(z) + u)
            return self.head(z)

    x = torch.randn(3000, 10)
    y = (x[:, 0] * x[:, 1] > 0).long() * 2 + (x[:, 2] + 0.5 * x[:, 3] > 0).long()
    x = knobs.inputs(x)
    net = knobs.net(Implicit())
    opt = knobs.optimizer(torch.optim.Adam(net.parameters(), lr=knobs.rate(6e-3)))
    w = knobs.watch(net, opt)
    for _ in range(knobs.steps):
        b = knobs.pick(2500, knobs.size(100))
        loss = nn.functional.cross_entropy(knobs.logits(net(knobs.feed(x[b]))), y[b])
        opt.zero_grad()
        loss.backward()
        opt.step()
        w.step(loss)
    return lambda: scores.accuracy(net(x[2500:]).argmax(1), y[2500:])


@kind(steps=300, has="inputs batch", goal=0.4)
def hamiltonian(knobs: Knobs) -> Score:
    """An energy whose gradient is the motion; the net is only ever seen through its derivative."""
    state = torch.rand(3000, 2) * 4 - 2
    motion = torch.stack([state[:, 1], -torch.sin(1.5 * state[:, 0])], 1)
    state = knobs.inputs(state)
    energy = knobs.net(nn.Sequential(nn.Linear(2, 64), nn.Softplus(), nn.Linear(64, 1)))

    def field(s):
        s = s.detach().requires_grad_()
        dq, dp = torch.autograd.grad(energy(s).sum(), s, create_graph=True)[0].unbind(1)
        return torch.stack([dp, -dq], 1)

    opt = knobs.optimizer(torch.optim.Adam(energy.parameters(), lr=knobs.rate(2e-2)))
    w = knobs.watch(energy, opt)
    for _epoch in range(6):
        for b in torch.randperm(2500)[: (knobs.steps // 6) * knobs.size(50)].split(knobs.size(50)):
            loss = (field(knobs.feed(state[b])) - motion[b]).square().sum(1).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            w.step(loss)
        w.evaluate(loss=(field(state[2500:]) - motion[2500:]).square().sum(1).mean().item())
        w.epoch()
    return lambda: scores.explained(field(state[2500:]).detach(), motion[2500:])
