"""Targets that are neither classes nor plain numbers: counts, ranks, survival, shares, rare events."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from benchmarks.faults.wild import scores
from benchmarks.faults.wild.kind import Score, kind
from benchmarks.faults.wild.knobs import Knobs
from torch.utils.data import DataLoader, TensorDataset


@kind(steps=250, has="inputs relu")
def cox_survival(knobs: Knobs) -> Score:
    """Partial likelihood of who dies first, all patients in one batch."""
    x = torch.randn(1200, 8)
    risk = x[:, 0] + x[:, 1] * x[:, 2] - 0.8 * x[:, 3].abs()
    time = -torch.log(torch.rand(1200)) * torch.exp(-2 * risk)
    censor = -torch.log(torch.rand(1200)) * 3
    event, seen = (time < censor).float(), torch.minimum(time, censor)
    x = knobs.inputs(x)
    net = knobs.net(nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1)))

    def neg_log_partial(score, seen, event):
        order = seen.argsort(descending=True)
        score, event = score[order], event[order]
        return -((score - torch.logcumsumexp(score, 0)) * event).sum() / event.sum()

    opt = knobs.optimizer(torch.optim.Adam(net.parameters(), lr=knobs.rate(7e-4), weight_decay=1e-3))
    w = knobs.watch(net, opt)
    for it in range(knobs.steps):
        net.train()
        loss = neg_log_partial(net(knobs.feed(x[:900])).squeeze(-1), seen[:900], event[:900])
        opt.zero_grad()
        loss.backward()
        opt.step()
        w.step(loss)
        if (it + 1) % 50 == 0:
            net.eval()
            with torch.no_grad():
                w.evaluate(loss=neg_log_partial(net(x[900:]).squeeze(-1), seen[900:], event[900:]).item())
    return lambda: scores.ordered(net(x[900:]).squeeze(-1).detach(), risk[900:])


@kind(steps=300, has="inputs targets batch order relu")
def pinball(knobs: Knobs) -> Score:
    """Nine quantiles at once."""
    x = torch.rand(4000, 2) * 2 - 1
    y = torch.sin(4 * x[:, 0]) + (0.2 + 0.6 * (x[:, 1] > 0)) * torch.randn(4000)
    x, y_all = knobs.inputs(x), y[:, None]
    xtr, xte, ytr, yte = x[:3000], x[3000:], knobs.targets(y_all[:3000]), y_all[3000:]
    taus = torch.arange(1, 10) / 10

    def loss_fn(q, y):
        e = y - q
        return torch.maximum(taus * e, (taus - 1) * e).mean()

    net = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 9))
    net = knobs.net(net)
    opt = knobs.optimizer(torch.optim.Adam(net.parameters(), lr=knobs.rate(3e-3)))
    w = knobs.watch(net, opt)
    for _ in range(knobs.steps):
        b = knobs.pick(3000, knobs.size(128))
        opt.zero_grad()
        loss = loss_fn(net(knobs.feed(xtr[b])), ytr[b])
        loss.backward()
        opt.step()
        w.step(loss)
    trivial = loss_fn(torch.quantile(y_all[:3000].flatten(), taus), yte)
    return lambda: scores.gained(loss_fn(net(xte), yte).detach(), trivial, 0.15)


@kind(steps=300, has="inputs targets batch sgd")
def poisson_counts(knobs: Knobs) -> Score:
    x = torch.randn(3000, 6)
    log_rate = 1.0 + 0.6 * torch.tanh(x[:, 0] + x[:, 1]) - 0.7 * torch.cos(x[:, 2])
    y = torch.poisson(log_rate.exp())
    x = knobs.inputs(x)
    train, test = (x[:2500], knobs.targets(y[:2500])), (x[2500:], log_rate[2500:])
    model = knobs.net(nn.Sequential(nn.Linear(6, 50), nn.Tanh(), nn.Linear(50, 1), nn.Flatten(0)))
    sgd = knobs.optimizer(torch.optim.SGD(model.parameters(), lr=knobs.rate(0.05), momentum=0.9))
    w = knobs.watch(model, sgd)
    for _ in range(knobs.steps):
        rows = knobs.pick(2500, knobs.size(100))
        out = model(knobs.feed(train[0][rows]))
        loss = (out.exp() - train[1][rows] * out).mean()  # below zero where counts are large
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        w.step(loss)
    return lambda: scores.explained(model(test[0]).detach(), test[1])


@kind(steps=300, has="inputs batch order targets")
def ordinal(knobs: Knobs) -> Score:
    """Five grades by four cumulative logits with ordered cuts."""

    class Cumulative(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Sequential(nn.Linear(10, 40), nn.GELU(), nn.Linear(40, 1))
            self.cuts = nn.Parameter(torch.tensor([-1.0, 0.7, 0.7, 0.7]))

        def forward(self, x):
            cuts = torch.cat([self.cuts[:1], self.cuts[:1] + F.softplus(self.cuts[1:]).cumsum(0)])
            return self.f(x) - cuts

    x = torch.randn(3000, 10)
    z = x[:, 0] * 1.5 + x[:, 1] * x[:, 2] + 0.2 * torch.randn(3000)
    grade = torch.bucketize(z, torch.quantile(z, torch.tensor([0.2, 0.4, 0.6, 0.8])))
    x, y = knobs.inputs(x), knobs.targets(grade[:2500])
    model = knobs.net(Cumulative())
    opt = knobs.optimizer(torch.optim.AdamW(model.parameters(), lr=knobs.rate(1e-2)))
    w = knobs.watch(model, opt)
    loader = DataLoader(TensorDataset(x[:2500], y), batch_size=knobs.size(64), sampler=knobs.order(2500).tolist())
    done = 0
    while done < knobs.steps:
        for xb, yb in loader:
            above = (yb[:, None] > torch.arange(4)).float()
            loss = F.binary_cross_entropy_with_logits(model(knobs.feed(xb)), above, reduction="none").sum(1).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            w.step(loss)
            done += 1
            if done >= knobs.steps:
                break
    return lambda: scores.explained((model(x[2500:]) > 0).sum(1).float(), grade[2500:].float())


@kind(steps=300, has="inputs relu batch dropout schedule")
def focal_rare_events(knobs: Knobs) -> Score:
    """4% positives; focal loss; OneCycle."""
    x = torch.randn(6000, 12)
    y = ((x[:, 0] + x[:, 1] > 1.6) & (x[:, 2] > -0.3)).float()
    x = knobs.inputs(x)
    net = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    net = knobs.net(net)
    opt = knobs.optimizer(torch.optim.AdamW(net.parameters(), lr=knobs.rate(5e-3), weight_decay=0.01))
    sched = torch.optim.lr_scheduler.OneCycleLR(
        opt, max_lr=[group["lr"] for group in opt.param_groups], total_steps=knobs.steps + 1
    )
    w = knobs.watch(net, opt)

    def focal(z, t, alpha=0.75, gamma=2.0):
        ce = F.binary_cross_entropy_with_logits(z, t, reduction="none")
        pt = torch.exp(-ce)
        return (torch.where(t > 0, alpha, 1 - alpha) * (1 - pt) ** gamma * ce).mean()

    def average_precision():
        net.eval()
        with torch.no_grad():
            hit = y[5000:][net(x[5000:]).squeeze(1).argsort(descending=True)]
        return float(((hit.cumsum(0) / torch.arange(1, len(hit) + 1)) * hit).sum() / hit.sum())

    for step in range(knobs.steps):
        net.train()
        b = knobs.pick(5000, knobs.size(256))
        loss = focal(net(knobs.feed(x[b])).squeeze(1), y[b])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        w.step(loss)
        if step % 100 == 99:
            w.evaluate(metrics={"average_precision": average_precision()})
    return average_precision


@kind(steps=250, has="inputs batch")
def shares(knobs: Knobs) -> Score:
    """Compositions: the KL divergence to soft targets that are mixtures themselves."""
    x = torch.randn(3000, 5)
    true = torch.softmax(torch.stack([x[:, 0] * 2, x[:, 1] * x[:, 2] * 2, torch.sin(3 * x[:, 3]), x[:, 4] * 0], 1), 1)
    x = knobs.inputs(x)
    net = knobs.net(nn.Sequential(nn.Linear(5, 64), nn.Mish(), nn.Linear(64, 64), nn.Mish(), nn.Linear(64, 4)))
    opt = knobs.optimizer(torch.optim.NAdam(net.parameters(), lr=knobs.rate(4e-3)))
    kl = nn.KLDivLoss(reduction="batchmean")
    w = knobs.watch(net, opt)
    test = slice(2500, 3000)
    for step in range(knobs.steps):
        b = knobs.pick(2500, knobs.size(64))
        loss = kl(net(knobs.feed(x[b])).log_softmax(1), true[b])
        opt.zero_grad()
        loss.backward()
        opt.step()
        w.step(loss)
        if step % 25 == 24:
            with torch.no_grad():
                w.evaluate(loss=float(kl(net(x[test]).log_softmax(1), true[test])))
            w.epoch()
    trivial = kl(true[:2500].mean(0).log().expand(500, 4), true[test])
    return lambda: scores.gained(kl(net(x[test]).log_softmax(1), true[test]).detach(), trivial)


@kind(steps=300, has="inputs batch relu")
def weighed_tasks(knobs: Knobs) -> Score:
    """Three tasks, weighed by learned uncertainties, so that the loss goes below zero."""
    x = torch.randn(4000, 8)
    a, b = torch.sin(2 * x[:, 0]) + x[:, 1], x[:, 2] * x[:, 3] * 10
    c = (x[:, 4] + x[:, 0] > 0).float()
    x = knobs.inputs(x)
    trunk = nn.Sequential(nn.Linear(8, 96), nn.ReLU(), nn.Linear(96, 64), nn.ReLU())
    heads = nn.ModuleDict({name: nn.Linear(64, 1) for name in "abc"})
    model = knobs.net(nn.ModuleDict({"trunk": trunk, "heads": heads}))
    log_var = nn.Parameter(torch.zeros(3))
    model.register_parameter("log_var", log_var)
    opt = knobs.optimizer(
        torch.optim.Adam(
            [
                {"params": model["trunk"].parameters(), "lr": knobs.rate(7e-3)},
                {"params": model["heads"].parameters(), "lr": knobs.rate(7e-3)},
                {"params": [log_var], "lr": knobs.rate(1e-2)},
            ]
        )
    )
    w = knobs.watch(model, opt)
    for _ in range(knobs.steps):
        i = knobs.pick(3500, knobs.size(128))
        h = model["trunk"](knobs.feed(x[i]))
        out = {name: head(h).squeeze(1) for name, head in model["heads"].items()}
        losses = torch.stack([
            F.mse_loss(out["a"], a[i]), F.mse_loss(out["b"], b[i]), F.binary_cross_entropy_with_logits(out["c"], c[i])
        ])  # fmt: skip
        loss = (losses * torch.exp(-log_var) + 0.5 * log_var).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        w.step(loss)

    @torch.no_grad()
    def score():
        h = model["trunk"](x[3500:])
        at = lambda name: model["heads"][name](h).squeeze(1)  # noqa: E731
        kept = [scores.explained(at("a"), a[3500:]), scores.explained(at("b"), b[3500:])]
        return (sum(kept) + scores.accuracy((at("c") > 0).float(), c[3500:])) / 3

    return score


@kind(steps=250, has="inputs batch")
def bags(knobs: Knobs) -> Score:
    """Multiple instances: a bag is positive if one of its 12 members is; attention finds it."""

    class GatedAttention(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Sequential(nn.Linear(6, 48), nn.Tanh(), nn.Linear(48, 32), nn.Tanh())
            self.v, self.u, self.weigh = nn.Linear(32, 24), nn.Linear(32, 24), nn.Linear(24, 1)
            self.tell = nn.Linear(32, 1)

        def forward(self, bags):
            h = self.embed(bags)
            a = self.weigh(torch.tanh(self.v(h)) * torch.sigmoid(self.u(h))).softmax(1)
            return self.tell((a * h).sum(1)).squeeze(1)

    members = torch.randn(3000, 12, 6)
    label = torch.rand(3000) < 0.5
    members[label, 0] = torch.tensor([2.0, -2.0, 2.0, 0, 0, 0]) + 0.5 * torch.randn(int(label.sum()), 6)
    members, label = knobs.inputs(members), label.float()
    model = knobs.net(GatedAttention())
    opt = knobs.optimizer(torch.optim.Adam(model.parameters(), lr=knobs.rate(2e-3)))
    w = knobs.watch(model, opt)
    for _ in range(knobs.steps):
        i = knobs.pick(2500, knobs.size(64))
        loss = F.binary_cross_entropy_with_logits(model(knobs.feed(members[i])), label[i])
        loss.backward()
        opt.step()
        opt.zero_grad()
        w.step(loss)
    return lambda: scores.accuracy((model(members[2500:]) > 0).float(), label[2500:])
