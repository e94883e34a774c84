"""Graphs as dense adjacency, all of one in each step."""

import torch
import torch.nn.functional as F
from benchmarks.faults.wild import scores
from benchmarks.faults.wild.kind import Score, kind
from benchmarks.faults.wild.knobs import Knobs
from torch import nn


def blocks(num=240, groups=4):
    """A graph whose nodes prefer their own group, and its normalised adjacency."""
    group = torch.arange(num) % groups
    near = torch.where(group[:, None] == group[None], 0.12, 0.015)
    adj = torch.triu((torch.rand(num, num) < near).float(), 1)
    adj = adj + adj.T
    loops = adj + torch.eye(num)
    norm = loops.sum(1).rsqrt()
    return group, adj, norm[:, None] * loops * norm[None]


@kind(steps=200, has="inputs relu dropout softmax", goal=0.4)
def few_labelled_nodes(knobs: Knobs) -> Score:
    """Graph convolution with 40 labels of 240."""
    group, _, a = blocks()
    x = knobs.inputs(F.one_hot(group, 4).float() * 0.5 + torch.randn(240, 4))
    x = torch.cat([x, torch.randn(240, 12)], 1)

    class GCN(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin1, self.relu = nn.Linear(16, 32), nn.ReLU()
            self.drop, self.lin2 = nn.Dropout(0.3), nn.Linear(32, 4)

        def forward(self, x):
            return a @ self.lin2(self.drop(self.relu(a @ self.lin1(x))))

    shuffled = torch.randperm(240)
    known, hidden = shuffled[:40], shuffled[40:]
    gcn = knobs.net(GCN())
    opt = knobs.optimizer(torch.optim.Adam(gcn.parameters(), lr=knobs.rate(1e-2), weight_decay=5e-4))
    w = knobs.watch(gcn, opt)

    def train():
        gcn.train()
        opt.zero_grad()
        loss = F.cross_entropy(knobs.logits(gcn(knobs.feed(x))[known]), group[known])
        loss.backward()
        opt.step()
        return loss

    @torch.no_grad()
    def test():
        gcn.eval()
        return scores.accuracy(gcn(x).argmax(1)[hidden], group[hidden])

    for epoch in range(1, knobs.steps + 1):
        w.step(train())
        if epoch % 20 == 0:
            w.evaluate(metrics={"accuracy": test()})
    return test


@kind(steps=200, has="relu", goal=0.5)
def hidden_links(knobs: Knobs) -> Score:
    """A graph autoencoder: edges as products of what two nodes are."""
    _, adj, a = blocks(160)
    upper = torch.triu(torch.ones(160, 160), 1).bool()
    near = (torch.arange(160)[:, None] % 4 == torch.arange(160)[None] % 4)[upper]
    encoder = knobs.net(nn.Sequential(nn.Linear(160, 64), nn.ReLU(), nn.Linear(64, 8)))
    opt = knobs.optimizer(torch.optim.Adam(encoder.parameters(), lr=knobs.rate(5e-3)))
    w = knobs.watch(encoder, opt)
    weight = (1 - adj.mean()) / adj.mean()

    def logits():
        h = encoder[1](encoder[0](a))
        z = a @ encoder[2](h)
        return (z @ z.T)[upper]

    for _ in range(knobs.steps):
        loss = F.binary_cross_entropy_with_logits(logits(), adj[upper], pos_weight=weight)
        opt.zero_grad()
        loss.backward()
        opt.step()
        w.step(loss)

    @torch.no_grad()
    def score():
        told = logits()
        pick = torch.randint(len(told), (1500,))
        return scores.ordered(told[pick], near[pick].float())

    return score
