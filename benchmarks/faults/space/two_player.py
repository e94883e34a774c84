"""A generator and a discriminator, each with an optimiser of its own."""

import math
import time

import torch
from benchmarks.faults.scenario import Session
from benchmarks.faults.space.recipe import Training
from torch import Tensor, nn
from torch.nn import functional


def real(num: int, draw: torch.Generator) -> Tensor:
    """Points of four clouds on a circle."""
    angle = math.pi / 2 * torch.randint(4, (num,), generator=draw)
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.15 * torch.randn(num, 2, generator=draw)


def distance(one: Tensor, other: Tensor) -> float:
    """The mean squared distance of sorted projections onto 16 directions: 0 for equal distributions."""
    angles = torch.arange(16) * math.pi / 16
    directions = torch.stack([angles.cos(), angles.sin()])
    return float(((one @ directions).sort(0).values - (other @ directions).sort(0).values).square().mean())


def train(training: Training, session: Session) -> tuple[float, list[float], list[float]]:
    """The quality (distance to real points over that of a cloud at 0), losses of the generator, times of steps."""
    draw = torch.Generator().manual_seed(training.randomness)
    width, loop, rate = training.model.width, training.loop, training.optimiser.rate
    g = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2))
    d = nn.Sequential(nn.Linear(2, width), nn.LeakyReLU(0.2), nn.Linear(width, width), nn.LeakyReLU(0.2),
                      nn.Linear(width, 1))  # fmt: skip
    og = torch.optim.Adam(g.parameters(), lr=rate, betas=(0.5, 0.99))
    od = torch.optim.Adam(d.parameters(), lr=rate, betas=(0.5, 0.99))
    held = real(512, draw)
    losses, times = [], []
    with session.watch({"G": g, "D": d}, {"G": og, "D": od}) as watch:
        for step in range(loop.steps):
            began = time.perf_counter()
            points = real(loop.batch, draw)
            fake = g(torch.randn(loop.batch, 4, generator=draw))
            if loop.zero_grad != "never":
                od.zero_grad()
            d_loss = functional.softplus(-d(points)).mean() + functional.softplus(d(fake.detach())).mean()
            d_loss.backward()
            if loop.zero_grad == "too-early":
                od.zero_grad()
            od.step()
            if loop.zero_grad != "never":
                og.zero_grad()
            g_loss = functional.softplus(-d(fake)).mean()
            g_loss.backward()
            if loop.zero_grad == "too-early":
                og.zero_grad()
            og.step()
            losses.append(g_loss.item())
            watch.step(parts={"g": g_loss, "d": d_loss})
            times.append(time.perf_counter() - began)
            if loop.evaluate_every > 0 and (step + 1) % loop.evaluate_every == 0:
                watch.evaluate(metrics={"distance": _score(g, held, draw)})
        quality = _score(g, held, draw)
    return quality, losses, times


def _score(g: nn.Module, held: Tensor, draw: torch.Generator) -> float:
    with torch.no_grad():
        return distance(g(torch.randn(512, 4, generator=draw)), held) / distance(torch.zeros_like(held), held)
