"""Distances, likeness and tables of embeddings."""

import copy
import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F
from benchmarks.faults.wild import scores
from benchmarks.faults.wild.kind import Score, kind
from benchmarks.faults.wild.knobs import Knobs


def families_of_points(num, *, kinds=8, dim=16):
    """Points of some classes behind a random nonlinear map."""
    label = torch.randint(kinds, (num,))
    centre, mix = torch.randn(kinds, 4) * 1.5, torch.randn(4, dim)
    hidden = centre[label] + 0.4 * torch.randn(num, 4)
    return torch.sin(hidden @ mix) + 0.05 * torch.randn(num, dim), label


def nearest(embed, x, label, cut):
    """Accuracy of the nearest neighbour among those trained on."""
    with torch.no_grad():
        z = embed(x)
        return scores.accuracy(label[:cut][torch.cdist(z[cut:], z[:cut]).argmin(1)], label[cut:])


@kind(steps=250, has="inputs relu", goal=0.4)
def triplet(knobs: Knobs) -> Score:
    x, label = families_of_points(1500)
    x = torch.cat([x, 2 * torch.randn(1500, 24)], 1)  # most of what is seen is noise
    x = knobs.inputs(x)
    net = knobs.net(nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)))
    opt = knobs.optimizer(torch.optim.Adam(net.parameters(), lr=knobs.rate(4e-3)))
    members = [torch.where(label[:1200] == c)[0] for c in range(8)]

    def triplets(n):
        for_class, other = torch.rand(n, 8).argsort(1)[:, :2].unbind(1)
        draw = lambda c: members[c][torch.randint(len(members[c]), ())]  # noqa: E731
        return torch.tensor([[draw(c), draw(c), draw(o)] for c, o in zip(for_class, other, strict=True)])

    w = knobs.watch(net, opt)
    for _ in range(knobs.steps):
        z = net(knobs.feed(x[triplets(32).flatten()])).view(32, 3, -1)
        gap = (z[:, 0] - z[:, 1]).norm(dim=1) - (z[:, 0] - z[:, 2]).norm(dim=1)
        loss = torch.clamp(gap + 1.0, min=0).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        w.step(loss)
    return lambda: nearest(net, x, label, 1200)


@kind(steps=250, has="inputs target-net batch norm relu", goal=0.4)
def bootstrap_latent(knobs: Knobs) -> Score:
    """BYOL: an online network foretells what its slow average says of another view."""
    x, label = families_of_points(2000)
    nuisance = torch.randn(16, 24)
    x = knobs.inputs(torch.cat([x, 0.5 * torch.randn(2000, 16) @ nuisance], 1))
    online = knobs.net(nn.Sequential(nn.Linear(40, 96), nn.BatchNorm1d(96), nn.ReLU(), nn.Linear(96, 24)))
    predictor = knobs.net(nn.Sequential(nn.Linear(24, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 24)))
    target = copy.deepcopy(online)
    for p in target.parameters():
        p.requires_grad = False
    opt = knobs.optimizer(
        torch.optim.Adam(itertools.chain(online.parameters(), predictor.parameters()), lr=knobs.rate(8e-3))
    )
    w = knobs.watch({"online": online, "predictor": predictor}, opt)

    def view(x):  # the nuisance is drawn anew
        return torch.cat([x[:, :16] + 0.1 * x[:, :16].std() * torch.randn(len(x), 16),
                          x[:, 16:][torch.randperm(len(x))]], 1)  # fmt: skip

    def regression(a, b):
        return 2 - 2 * F.cosine_similarity(a, b.detach(), dim=-1).mean()

    for _ in range(knobs.steps):
        batch = knobs.feed(x[knobs.pick(1600, knobs.size(128))])
        one, two = view(batch), view(batch)
        loss = regression(predictor(online(one)), target(two)) + regression(predictor(online(two)), target(one))
        opt.zero_grad()
        loss.backward()
        opt.step()
        knobs.follow(target, online, 0.05)
        w.step(loss)
    return lambda: nearest(lambda x: F.normalize(online.eval()(x), dim=1), x, label, 1600)


@kind(steps=350, has="sgd", goal=0.5)
def word_vectors(knobs: Knobs) -> Score:
    """Skip-gram with negative samples; words of one topic stand together."""
    topic = torch.arange(120) % 8

    def corpus(n):
        t = torch.randint(8, (n,))
        word = lambda: torch.randint(15, (n,)) * 8 + t  # noqa: E731
        noisy = lambda w: torch.where(torch.rand(n) < 0.15, torch.randint(120, (n,)), w)  # noqa: E731
        return noisy(word()), noisy(word())

    class SkipGram(nn.Module):
        def __init__(self, vocab=120, dim=16):
            super().__init__()
            self.u, self.v = nn.Embedding(vocab, dim), nn.Embedding(vocab, dim)
            nn.init.uniform_(self.u.weight, -0.5 / dim, 0.5 / dim)
            nn.init.uniform_(self.v.weight, -0.5 / dim, 0.5 / dim)

        def forward(self, centre, context, negative):
            u = self.u(centre)
            good = F.logsigmoid((u * self.v(context)).sum(1))
            bad = F.logsigmoid(-torch.bmm(self.v(negative), u[:, :, None]).squeeze(2)).sum(1)
            return -(good + bad).mean()

    model = knobs.net(SkipGram())
    opt = knobs.optimizer(torch.optim.Adagrad(model.parameters(), lr=knobs.rate(0.1)))
    w = knobs.watch(model, opt)
    for _ in range(knobs.steps):
        centre, context = corpus(256)
        loss = model(centre, context, torch.randint(120, (256, 5)))
        opt.zero_grad()
        loss.backward()
        opt.step()
        w.step(loss)

    @torch.no_grad()
    def score():
        z = F.normalize(model.u.weight, dim=1)
        near = (z @ z.T - 2 * torch.eye(120)).topk(5).indices
        return (float((topic[near] == topic[:, None]).float().mean()) - 1 / 8) / (7 / 8)

    return score


@kind(steps=300, has="", goal=0.4)
def non_negative_factors(knobs: Knobs) -> Score:
    """A matrix as a product of two non-negative ones, by its known cells; all of them in each step."""
    true = torch.rand(60, 4) @ torch.rand(4, 50) * 2
    known = torch.rand(60, 50) < 0.5

    class Factors(nn.Module):
        def __init__(self):
            super().__init__()
            self.rows, self.cols = nn.Parameter(torch.randn(60, 4)), nn.Parameter(torch.randn(4, 50))

        def forward(self):
            return F.softplus(self.rows) @ F.softplus(self.cols)

    model = knobs.net(Factors())
    opt = knobs.optimizer(torch.optim.Adam(model.parameters(), lr=knobs.rate(0.08)))
    w = knobs.watch(model, opt)

    def penalty():
        return 1e-4 * (model.rows.square().sum() + model.cols.square().sum())

    for _ in range(knobs.steps):
        opt.zero_grad()
        loss = ((model() - true)[known] ** 2).sum() / 2 + penalty()
        loss.backward()
        opt.step()
        w.step(loss)
    return lambda: scores.explained(model().detach()[~known], true[~known])


@kind(steps=300, has="batch", goal=0.5)
def translated_entities(knobs: Knobs) -> Score:
    """TransE: head + relation ≈ tail, by a margin against corrupted tails."""
    place = torch.randn(80, 3)
    shift = torch.randn(5, 3)
    heads, rels = torch.cartesian_prod(torch.arange(80), torch.arange(5)).unbind(1)
    tails = torch.cdist(place[heads] + shift[rels], place).argmin(1)
    order = torch.randperm(400)
    train, test = order[:340], order[340:]

    class TransE(nn.Module):
        def __init__(self):
            super().__init__()
            self.entity, self.relation = nn.Embedding(80, 12), nn.Embedding(5, 12)

        def forward(self, h, r, t):
            return (self.entity(h) + self.relation(r) - self.entity(t)).norm(p=1, dim=-1)

    model = knobs.net(TransE())
    opt = knobs.optimizer(torch.optim.Adam(model.parameters(), lr=knobs.rate(0.1)))
    w = knobs.watch(model, opt)
    rank = nn.MarginRankingLoss(margin=2.0)
    for _ in range(knobs.steps):
        b = train[knobs.pick(340, knobs.size(170))]
        good = model(heads[b], rels[b], tails[b])
        bad = model(heads[b], rels[b], torch.randint(80, (len(b),)))
        loss = rank(bad, good, torch.ones(len(b)))
        opt.zero_grad()
        loss.backward()
        opt.step()
        w.step(loss)

    @torch.no_grad()
    def score():
        far = model(heads[test, None], rels[test, None], torch.arange(80)[None])
        place_of = (far < far.gather(1, tails[test, None])).sum(1).float()
        return 1 - float(place_of.mean()) / 39.5

    return score
