"""What one net learned helps another: distillation, adapters, meta-learning, curricula, averages."""

import copy

import torch
import torch.nn.functional as F
from benchmarks.faults.wild import scores
from benchmarks.faults.wild.kind import Score, kind
from benchmarks.faults.wild.knobs import Knobs
from torch import nn


def rings(num, *, turn=0.0):
    """Four classes by two products of features."""
    x = torch.randn(num, 8)
    a = x[:, 0] * x[:, 1] + turn * x[:, 4]
    b = torch.sin(2 * x[:, 2]) + x[:, 3] * 0.5
    return x, (a > 0).long() * 2 + (b > 0).long()


def fit(net, x, y, steps, lr=3e-3):
    opt = torch.optim.Adam(net.parameters(), lr=lr)
    for _ in range(steps):
        i = torch.randint(len(x), (128,))
        opt.zero_grad()
        F.cross_entropy(net(x[i]), y[i]).backward()
        opt.step()


@kind(steps=300, has="inputs batch relu", goal=0.5)
def distillation(knobs: Knobs) -> Score:
    """A student of 48 units learns from a teacher's softened opinions at temperature 4."""
    x, y = rings(4000)
    teacher = nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 4))
    fit(teacher, x[:3500], y[:3500], 250)
    teacher.eval().requires_grad_(False)
    seen = knobs.inputs(x)
    student = knobs.net(nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 4)))
    opt = knobs.optimizer(torch.optim.Adam(student.parameters(), lr=knobs.rate(5e-3)))
    w = knobs.watch(student, opt)
    temperature, alpha = 4.0, 0.7
    for _ in range(knobs.steps):
        i = knobs.pick(3500, knobs.size(128))
        out = student(knobs.feed(seen[i]))
        soft = F.kl_div(
            F.log_softmax(out / temperature, 1), F.softmax(teacher(x[i]) / temperature, 1), reduction="batchmean"
        )
        loss = alpha * temperature**2 * soft + (1 - alpha) * F.cross_entropy(out, y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
        w.step(loss)
    return lambda: scores.accuracy(student(seen[3500:]).argmax(1), y[3500:])


@kind(steps=250, has="batch softmax", goal=0.5)
def low_rank_adapters(knobs: Knobs) -> Score:
    """LoRA: a net that came trained is frozen, rank-4 products beside its layers are not."""

    class LoRA(nn.Module):
        def __init__(self, base, rank=4):
            super().__init__()
            self.base = base.requires_grad_(False)
            self.a = nn.Parameter(torch.randn(rank, base.in_features) / rank)
            self.b = nn.Parameter(torch.zeros(base.out_features, rank))

        def forward(self, x):
            return self.base(x) + 2 * (x @ self.a.T @ self.b.T)

    old = nn.Sequential(nn.Linear(8, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 4))
    fit(old, *rings(3000), 250)
    x, y = rings(3000, turn=1.5)
    net = knobs.net(nn.Sequential(LoRA(old[0]), nn.ReLU(), LoRA(old[2]), nn.ReLU(), LoRA(old[4])))
    trainable = [p for p in net.parameters() if p.requires_grad]
    opt = knobs.optimizer(torch.optim.AdamW(trainable, lr=knobs.rate(5e-3)))
    w = knobs.watch(net, opt)
    for _ in range(knobs.steps):
        i = knobs.pick(2500, knobs.size(64))
        loss = F.cross_entropy(knobs.logits(net(x[i])), y[i])
        loss.backward()
        opt.step()
        opt.zero_grad()
        w.step(loss)
    return lambda: scores.accuracy(net(x[2500:]).argmax(1), y[2500:])


@kind(steps=200, has="own-step", goal=0.6)
def reptile(knobs: Knobs) -> Score:
    """Meta-learning: five plain steps on one sine each, then the weights move a part of the way."""
    net = knobs.net(nn.Sequential(nn.Linear(1, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 1)))
    outer = knobs.optimizer(torch.optim.SGD(net.parameters(), lr=knobs.rate(0.5)))
    w = knobs.watch(net, outer)

    def sine():
        phase, height = torch.rand(()) * 3.14, 0.5 + torch.rand(())
        x = torch.rand(20, 1) * 6 - 3
        return x, height * torch.sin(x + phase)

    def adapt(fast, x, y, steps=5, lr=0.05):
        first = None
        for _ in range(steps):
            loss = F.mse_loss(fast(x), y)
            first = loss.detach() if first is None else first
            grads = torch.autograd.grad(loss, list(fast.parameters()))
            with torch.no_grad():
                for p, g in zip(fast.parameters(), grads, strict=True):
                    p -= lr * g
        return first, loss.detach()

    for _ in range(knobs.steps):
        fast = copy.deepcopy(net)
        _, last = adapt(fast, *sine())
        for p, q in zip(net.parameters(), fast.parameters(), strict=True):
            p.grad = p.detach() - q.detach()
        outer.step()
        w.step(last)

    def score():
        left, start = 0.0, 0.0
        for _ in range(50):
            x, y = sine()
            fast = copy.deepcopy(net)
            adapt(fast, x[:10], y[:10])
            left += float((fast(x[10:]) - y[10:]).square().mean().detach())
            start += float(y[10:].square().mean())
        return scores.gained(left, start)

    return score


@kind(steps=300, has="batch softmax", goal=0.6)
def curriculum(knobs: Knobs) -> Score:
    """Parity of ever more bits: what is asked grows harder on a plan, so the loss rises in between."""
    net = knobs.net(nn.Sequential(nn.Linear(20, 96), nn.ELU(), nn.Linear(96, 96), nn.ELU(), nn.Linear(96, 10)))

    def sums(n, hard):
        x = torch.randint(10, (n, 2))
        x[:, 1] = torch.minimum(x[:, 1], torch.tensor(hard))
        return F.one_hot(x, 10).flatten(1).float(), x.sum(1) % 10

    opt = knobs.optimizer(torch.optim.Adam(net.parameters(), lr=knobs.rate(1e-2)))
    w = knobs.watch(net, opt)
    stages = [1, 3, 5, 7, 9]
    for i in range(knobs.steps):
        hard = stages[min(4, i * 7 // knobs.steps)]
        x, y = sums(knobs.size(96), hard)
        loss = F.cross_entropy(knobs.logits(net(x)), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        w.step(loss)
        if i % 50 == 49:
            with torch.no_grad():
                x, y = sums(300, 9)
                w.evaluate(loss=float(F.cross_entropy(net(x), y)))

    @torch.no_grad()
    def score():
        x, y = sums(1000, 9)
        return scores.accuracy(net(x).argmax(1), y)

    return score


@kind(steps=300, has="inputs batch", goal=0.5)
def mean_teacher(knobs: Knobs) -> Score:
    """40 labels; a slow average of the net tells the rest what it should say of noisy copies."""
    centre = torch.randn(4, 10) * 1.3
    label = torch.randint(4, (2000,))
    x = knobs.inputs(torch.tanh(centre[label] + 0.7 * torch.randn(2000, 10)))
    net = knobs.net(nn.Sequential(nn.Linear(10, 64), nn.LeakyReLU(), nn.Linear(64, 4)))
    teacher = copy.deepcopy(net).requires_grad_(False)
    opt = knobs.optimizer(torch.optim.SGD(net.parameters(), lr=knobs.rate(0.2), momentum=0.9, nesterov=True))
    w = knobs.watch(net, opt)
    for step in range(knobs.steps):
        few, many = torch.randint(40, (20,)), 40 + knobs.pick(1460, knobs.size(80))
        supervised = F.cross_entropy(net(x[few]), label[few])
        noisy = knobs.feed(x[many])
        noisy = noisy + 0.1 * torch.randn_like(noisy)
        consistency = (net(noisy).softmax(1) - teacher(x[many]).softmax(1)).square().sum(1).mean()
        loss = supervised + min(1.0, step / 100) * 2 * consistency
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), net.parameters(), strict=True):
                slow.mul_(0.98).add_(fast, alpha=0.02)
        w.step(loss)
    return lambda: scores.accuracy(teacher(x[1500:]).argmax(1), label[1500:])
