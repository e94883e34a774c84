"""Steps that are not plain: closures, two passes, accumulation, optimisers written by hand."""

import torch
from benchmarks.faults.wild import scores
from benchmarks.faults.wild.kind import Score, kind
from benchmarks.faults.wild.knobs import Knobs
from torch import nn
from torch.nn import functional as F


def bumpy(num):
    x = torch.rand(num, 3) * 2 - 1
    return x, torch.sin(3 * x[:, 0]) * torch.cos(2 * x[:, 1]) + x[:, 2] ** 2


@kind(steps=100, has="inputs targets closure", goal=0.3)
def quasi_newton(knobs: Knobs) -> Score:
    """LBFGS on everything at once, by a closure that is called several times a step."""
    x, y = bumpy(900)
    x = knobs.inputs(x)
    train, want = x[:700], knobs.targets(y[:700])
    net = knobs.net(nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 1)))
    opt = knobs.optimizer(torch.optim.LBFGS(net.parameters(), lr=knobs.rate(0.3), max_iter=4, history_size=10))
    w = knobs.watch(net, opt)
    for _ in range(knobs.steps):
        batch = knobs.feed(train)

        def closure(batch=batch):
            opt.zero_grad()
            loss = F.mse_loss(net(batch).squeeze(1), want)
            loss.backward()
            return loss

        loss = opt.step(closure)
        w.step(loss)
    return lambda: scores.explained(net(x[700:]).squeeze(1).detach(), y[700:])


@kind(steps=200, has="inputs batch softmax own-step sgd", goal=0.5)
def sharpness_aware(knobs: Knobs) -> Score:
    """SAM: climb a little, take the gradient there, step from where one was."""
    x = torch.randn(3000, 6)
    y = (x[:, 0] * x[:, 1] + x[:, 2] > 0).long() + (x[:, 3] > 0.5).long()
    x = knobs.inputs(x)
    net = knobs.net(nn.Sequential(nn.Linear(6, 64), nn.SiLU(), nn.Linear(64, 3)))
    opt = knobs.optimizer(torch.optim.SGD(net.parameters(), lr=knobs.rate(0.2), momentum=0.9))
    w = knobs.watch(net, opt)
    for _ in range(knobs.steps):
        b = knobs.pick(2500, knobs.size(96))
        xb, yb = knobs.feed(x[b]), y[b]
        loss = F.cross_entropy(knobs.logits(net(xb)), yb)
        loss.backward()
        with torch.no_grad():
            params = [p for p in net.parameters() if p.grad is not None]
            size = torch.stack([p.grad.norm() for p in params]).norm() + 1e-12
            climbs = [0.05 * p.grad / size for p in params]
            for p, e in zip(params, climbs, strict=True):
                p.add_(e)
        opt.zero_grad()
        F.cross_entropy(knobs.logits(net(xb)), yb).backward()
        with torch.no_grad():
            for p, e in zip(params, climbs, strict=True):
                p.sub_(e)
        opt.step()
        opt.zero_grad()
        w.step(loss)
    return lambda: scores.accuracy(net(x[2500:]).argmax(1), y[2500:])


class SignMomentum(torch.optim.Optimizer):
    """Lion, as it is copied from repository to repository."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(group["lr"] * torch.sign(m * group["betas"][0] + p.grad * (1 - group["betas"][0])))
                m.lerp_(p.grad, 1 - group["betas"][1])


@kind(steps=250, has="inputs targets batch relu", goal=0.4)
def signs_by_hand(knobs: Knobs) -> Score:
    x, y = bumpy(3000)
    x = knobs.inputs(x)
    xs, ys = x[:2500], knobs.targets(y[:2500])
    net = knobs.net(nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)))
    opt = knobs.optimizer(SignMomentum(net.parameters(), lr=knobs.rate(1e-3)))
    w = knobs.watch(net, opt)

    def batches():
        for _ in range(knobs.steps):
            rows = knobs.pick(2500, knobs.size(64))
            yield xs[rows], ys[rows]

    for xb, yb in batches():
        loss = torch.log(torch.cosh(net(knobs.feed(xb)).squeeze(1) - yb)).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        w.step(loss)
    return lambda: scores.explained(net(x[2500:]).squeeze(1).detach(), y[2500:])


class Trainer:
    """The class that every research repository has."""

    def __init__(self, model, optimizer, knobs, accumulate=4):
        self.model, self.optimizer, self.knobs, self.accumulate = model, optimizer, knobs, accumulate
        self.watch = knobs.watch(model, optimizer)
        self.history = {"train": [], "val": []}

    def fit(self, x, y, validation):
        for step in range(self.knobs.steps):
            total = 0.0
            self.model.train()
            self.optimizer.zero_grad()
            for _ in range(self.accumulate):
                b = self.knobs.pick(len(x), self.knobs.size(16))
                loss = F.mse_loss(self.model(self.knobs.feed(x[b])).squeeze(1), y[b]) / self.accumulate
                loss.backward()
                total += loss.item()
            nn.utils.clip_grad_value_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.watch.step(total)
            self.history["train"].append(total)
            if (step + 1) % 25 == 0:
                self.history["val"].append(self.validate(*validation))
                self.watch.evaluate(loss=self.history["val"][-1])
                self.watch.epoch()

    @torch.no_grad()
    def validate(self, x, y):
        self.model.eval()
        return F.mse_loss(self.model(x).squeeze(1), y).item()


@kind(steps=200, has="inputs targets batch relu dropout", goal=0.5)
def accumulating_trainer(knobs: Knobs) -> Score:
    x, y = bumpy(2500)
    x = knobs.inputs(x)
    model = nn.Sequential(
        nn.Linear(3, 128),
        nn.LayerNorm(128),
        nn.ReLU(),
        nn.Dropout(0.05),
        nn.Linear(128, 64),
        nn.ReLU(),
        nn.Linear(64, 1),
    )
    model = knobs.net(model)
    optimizer = knobs.optimizer(torch.optim.AdamW(model.parameters(), lr=knobs.rate(3e-3), weight_decay=0.01))
    trainer = Trainer(model, optimizer, knobs)
    trainer.fit(x[:2000], knobs.targets(y[:2000]), (x[2000:], y[2000:]))
    return lambda: scores.gained(trainer.validate(x[2000:], y[2000:]), float(y[2000:].var()))


@kind(steps=300, has="batch sgd", goal=0.4)
def wide_and_deep(knobs: Knobs) -> Score:
    """A linear part of crossed columns and a deep part of embeddings, each with its own optimiser."""
    a, b = torch.randint(20, (2, 5000))
    effect, cross = torch.randn(20), torch.randn(20, 20)
    clicks = torch.bernoulli(torch.sigmoid(2 * effect[a] + 2 * effect[b] + 2.5 * cross[a, b]))

    class WideDeep(nn.Module):
        def __init__(self):
            super().__init__()
            self.wide = nn.Embedding(400, 1)
            nn.init.zeros_(self.wide.weight)
            self.table = nn.Embedding(20, 8)
            self.deep = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 1))

        def forward(self, a, b):
            deep = self.deep(torch.cat([self.table(a), self.table(b)], 1))
            return (self.wide(a * 20 + b) + deep).squeeze(1)

    model = knobs.net(WideDeep())
    wide = knobs.optimizer(torch.optim.Adagrad(model.wide.parameters(), lr=knobs.rate(0.3)))
    rest = [p for name, p in model.named_parameters() if not name.startswith("wide")]
    deep = knobs.optimizer(torch.optim.Adam(rest, lr=knobs.rate(3e-3)))
    w = knobs.watch(model, {"wide": wide, "deep": deep})
    for _ in range(knobs.steps):
        i = knobs.pick(4500, knobs.size(256))
        loss = F.binary_cross_entropy_with_logits(model(a[i], b[i]), clicks[i])
        wide.zero_grad()
        deep.zero_grad()
        loss.backward()
        wide.step()
        deep.step()
        w.step(loss)
    truth = (2 * effect[a] + 2 * effect[b] + 2.5 * cross[a, b])[4500:]
    return lambda: scores.ordered(model(a[4500:], b[4500:]).detach(), truth)
