"""Two models and two optimisers: a GAN whose discriminator makes five steps for one of the generator."""

import math

import torch
from torch import Tensor, nn

import sonde

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
discriminator = nn.Sequential(
    nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1)
)
models = {"G": generator, "D": discriminator}
optimizers = {
    "G": torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.99)),
    "D": torch.optim.Adam(discriminator.parameters(), lr=1e-3, betas=(0.5, 0.99)),
}


def real(num: int) -> Tensor:
    """Points around a circle."""
    angles = 2 * math.pi * torch.rand(num, 1)
    return torch.cat([angles.cos(), angles.sin()], dim=1) + 0.05 * torch.randn(num, 2)


def fake(num: int) -> Tensor:
    """Points that the generator makes."""
    return generator(torch.randn(num, 8))


with sonde.watch(models, optimizers) as watch:
    for iteration in range(1, 301):
        losses = {}
        losses["D"] = nn.functional.softplus(-discriminator(real(128))).mean()
        losses["D"] = losses["D"] + nn.functional.softplus(discriminator(fake(128).detach())).mean()
        optimizers["D"].zero_grad()
        losses["D"].backward()
        optimizers["D"].step()

        if iteration % 5 == 0:
            losses["G"] = nn.functional.softplus(-discriminator(fake(128))).mean()
            optimizers["G"].zero_grad()
            losses["G"].backward()
            optimizers["G"].step()
        # Once an iteration, however many optimisers made a step in it; there is no single loss.
        watch.step(parts=losses)

run = sonde.load(watch.path)
for name in models:
    part, norm = run.series(f"loss/part@{name}"), run.series(f"grad/norm@{name}")
    print(f"{name}: {len(norm.step)} steps, loss {part.value[-1]:.3f}, gradient norm {norm.value[-1]:.3f}")
print("of one layer:", ", ".join(run.tags("update/ratio@G.0.*")))
print(f"look at it with: sonde show {watch.path}")
