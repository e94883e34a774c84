"""Small pictures: masks, boxes, missing patches, attacks."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from benchmarks.faults.wild import scores
from benchmarks.faults.wild.kind import Score, kind
from benchmarks.faults.wild.knobs import Knobs


def discs(num, side=16):
    """A disc or a square in noise: pictures, masks, boxes (centre and size as shares), classes."""
    axis = torch.arange(side) + 0.5
    centre, radius = torch.rand(num, 2) * (side - 8) + 4, torch.rand(num) * 2 + 2
    off = torch.stack(torch.meshgrid(axis, axis, indexing="ij"))[None] - centre[:, :, None, None]
    square = torch.rand(num) < 0.5
    far = torch.where(square[:, None, None], off.abs().amax(1), off.norm(dim=1))
    mask = (far < radius[:, None, None]).float()[:, None]
    picture = mask * (0.6 + 0.6 * torch.rand(num, 1, 1, 1)) + 0.35 * torch.randn(num, 1, side, side)
    return picture, mask, torch.cat([centre, radius[:, None]], 1) / side, square.long()


@kind(steps=150, has="inputs batch norm relu", goal=0.5)
def masks(knobs: Knobs) -> Score:
    """A small U-Net with batch norm; cross-entropy and Dice summed."""

    def block(cin, cout):
        return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.BatchNorm2d(cout), nn.ReLU())

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.down1, self.down2 = block(1, 8), block(8, 16)
            self.mid, self.up1 = block(16, 16), block(32, 8)
            self.out = nn.Conv2d(16, 1, 1)

        def forward(self, x):
            a = self.down1(x)
            b = self.down2(F.max_pool2d(a, 2))
            c = self.mid(F.max_pool2d(b, 2))
            c = self.up1(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
            return self.out(torch.cat([F.interpolate(c, scale_factor=2), a], 1))

    def dice(p, t):
        return 1 - (2 * (p * t).sum((1, 2, 3)) + 1) / (p.sum((1, 2, 3)) + t.sum((1, 2, 3)) + 1)

    x, mask, _, _ = discs(900)
    x = knobs.inputs(x)
    net = knobs.net(UNet())
    opt = knobs.optimizer(torch.optim.Adam(net.parameters(), lr=knobs.rate(5e-3)))
    w = knobs.watch(net, opt)

    @torch.no_grad()
    def overlap():
        net.eval()
        return 1 - float(dice((net(x[700:]) > 0).float(), mask[700:]).mean()) / 0.8

    for i in range(knobs.steps):
        net.train()
        b = knobs.pick(700, knobs.size(24))
        z = net(knobs.feed(x[b]))
        loss = F.binary_cross_entropy_with_logits(z, mask[b]) + dice(z.sigmoid(), mask[b]).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        w.step(loss)
        if i % 50 == 49:
            w.evaluate(metrics={"dice": overlap()})
    return overlap


@kind(steps=200, has="inputs batch relu schedule", goal=0.5)
def boxes(knobs: Knobs) -> Score:
    """One trunk, three heads (is there anything, where, what), losses in a dictionary."""

    class Detector(nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk = nn.Sequential(
                nn.Conv2d(1, 12, 3, stride=2, padding=1),
                nn.ReLU(),
                nn.Conv2d(12, 24, 3, stride=2, padding=1),
                nn.ReLU(),
                nn.Flatten(),
                nn.Linear(384, 64),
                nn.ReLU(),
            )
            self.objectness, self.box, self.label = nn.Linear(64, 1), nn.Linear(64, 3), nn.Linear(64, 2)

        def forward(self, x, targets):
            h = self.trunk(x)
            there, box, label = targets
            return {
                "objectness": F.binary_cross_entropy_with_logits(self.objectness(h).squeeze(1), there),
                "box": 5 * (F.smooth_l1_loss(self.box(h), box, beta=0.1, reduction="none").mean(1) * there).mean(),
                "label": (F.cross_entropy(self.label(h), label, reduction="none") * there).mean(),
            }

    x, _, box, label = discs(1600)
    there = (torch.rand(1600) < 0.75).float()
    x = torch.where(there.bool()[:, None, None, None], x, 0.35 * torch.randn_like(x))
    x = knobs.inputs(x)
    net = knobs.net(Detector())
    opt = knobs.optimizer(torch.optim.SGD(net.parameters(), lr=knobs.rate(0.05), momentum=0.9, weight_decay=1e-4))
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, knobs.steps)
    w = knobs.watch(net, opt)
    for _ in range(knobs.steps):
        b = knobs.pick(1300, knobs.size(32))
        losses = net(knobs.feed(x[b]), (there[b], box[b], label[b]))
        total = sum(losses.values())
        opt.zero_grad()
        total.backward()
        opt.step()
        sched.step()
        w.step(total)

    @torch.no_grad()
    def score():
        h = net.trunk(x[1300:])
        seen = there[1300:]
        found = scores.accuracy((net.objectness(h).squeeze(1) > 0).float(), seen)
        return (found + scores.explained(net.box(h)[seen > 0, :2], box[1300:][seen > 0, :2])) / 2

    return score


@kind(steps=160, has="inputs batch", goal=0.6)
def missing_patches(knobs: Knobs) -> Score:
    """Masked autoencoding: half of the patches are shown to a transformer, the loss counts the others."""

    class Masked(nn.Module):
        def __init__(self, dim=32):
            super().__init__()
            self.embed, self.where = nn.Linear(16, dim), nn.Parameter(0.1 * torch.randn(16, dim))
            self.blank = nn.Parameter(torch.zeros(dim))
            layer = nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
            self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.back = nn.Linear(dim, 16)

        def forward(self, patches, gone):
            h = torch.where(gone[..., None], self.blank, self.embed(patches)) + self.where
            return self.back(self.body(h))

    axis = torch.linspace(0, 1, 16)
    a, b, c = torch.rand(3, 1500, 1, 1) * 6
    picture = torch.sin(a * axis[None, :, None] + b * axis[None, None] + c)  # smooth waves
    patches = knobs.inputs(picture.view(1500, 4, 4, 4, 4).transpose(2, 3).reshape(1500, 16, 16))
    mae = knobs.net(Masked())
    opt = knobs.optimizer(torch.optim.AdamW(mae.parameters(), lr=knobs.rate(6e-3), betas=(0.9, 0.95)))
    w = knobs.watch(mae, opt)

    def objective(x):
        gone = torch.rand(x.shape[:2]) < 0.5
        return ((mae(x, gone) - x) ** 2).mean(-1)[gone].mean()

    for _ in range(knobs.steps):
        loss = objective(knobs.feed(patches[knobs.pick(1300, knobs.size(32))]))
        opt.zero_grad()
        loss.backward()
        opt.step()
        w.step(loss)
    test = patches[1300:]
    return lambda: scores.gained(objective(test).detach(), (test - test.mean(0)).square().mean())


@kind(steps=200, has="inputs batch relu", goal=0.5)
def under_attack(knobs: Knobs) -> Score:
    """Adversarial training: every batch is first moved against the net by one signed step."""
    x, _, _, label = discs(1500)
    x = knobs.inputs(torch.cat([x, x.flip(3)]))
    label = label.repeat(2)
    bright = x.mean((1, 2, 3)) > x.mean((1, 2, 3)).median()
    y = bright.long()
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(144, 2),
    )
    net = knobs.net(net)
    opt = knobs.optimizer(torch.optim.Adam(net.parameters(), lr=knobs.rate(2e-3)))
    w = knobs.watch(net, opt)

    def attack(x, y, eps=0.03):
        x = x.clone().requires_grad_()
        (grad,) = torch.autograd.grad(F.cross_entropy(net(x), y), x)
        return (x + eps * grad.sign()).detach()

    for _ in range(knobs.steps):
        b = knobs.pick(2500, knobs.size(32))
        xb = knobs.feed(x[b])
        bad = attack(xb, y[b])
        opt.zero_grad()
        loss = 0.5 * F.cross_entropy(net(xb), y[b]) + 0.5 * F.cross_entropy(net(bad), y[b])
        loss.backward()
        opt.step()
        w.step(loss)
    return lambda: scores.accuracy(net(attack(x[2500:], y[2500:])).argmax(1), y[2500:])
