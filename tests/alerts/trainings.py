"""A training that goes wrong at once."""

import torch
from torch import nn

import sonde


class Diverging:
    """A linear model with a learning rate that is far too high."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self._x = torch.randn(64, 8, generator=generator)
        self.model = nn.Linear(8, 1)
        with torch.no_grad():
            self.model.weight.fill_(0.1)
            self.model.bias.zero_()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=5.0)

    def train(self, watch: sonde.Watch, num_steps: int) -> list[float]:
        losses = []
        for _ in range(num_steps):
            loss = (self.model(self._x) - self._x.sum(1, keepdim=True)).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            watch.step(loss)
            losses.append(loss.item())
        return losses
