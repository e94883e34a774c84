"""Optimisers, and the groups of parameters they are given."""

import random
from typing import Any

import torch
from benchmarks.faults.space.recipe import Optimiser
from torch import nn

CHOICES = ("sgd", "sgd", "nesterov", "adam", "adam", "adamw", "rmsprop")

ADAPTIVE = frozenset({"adam", "adamw", "rmsprop"})
"""Those whose steps do not grow with the gradient."""


def draw(rng: random.Random, *, rate: float, adaptive_rate: float, adaptive_only: bool) -> dict[str, Any]:
    """An optimiser and its settings.

    Args:
        rate: A good one for plain SGD with momentum 0.9.
        adaptive_rate: A good one for Adam.
        adaptive_only: Whether SGD is no choice here.
    """
    name = rng.choice([name for name in CHOICES if name in ADAPTIVE or not adaptive_only])
    factor = 0.4 if name == "rmsprop" else 1.0
    good = (adaptive_rate if name in ADAPTIVE else rate) * factor
    return {
        "optimiser.name": name,
        "optimiser.rate": float(f"{good * 2 ** rng.uniform(-0.5, 0.5):.2g}"),
        "optimiser.weight_decay": rng.choice((0.0, 0.0, 1e-4, 1e-2 if name == "adamw" else 1e-4)),
        "optimiser.head_rate": rng.choice((1.0, 1.0, 1.0, 2.0, 0.5)),
    }


def build(settings: Optimiser, model: nn.Module) -> torch.optim.Optimizer:
    """The optimiser over the model's parameters, a group for its head where that has a rate of its own."""
    named = [parameter for parameter in model.parameters() if parameter.requires_grad]
    skipped = int(settings.left_out * len(named))
    named = named[skipped:]
    if settings.head_rate != 1 and len(named) > 2:
        groups = [{"params": named[:-2]}, {"params": named[-2:], "lr": settings.rate * settings.head_rate}]
    else:
        groups = [{"params": named}]
    decay = settings.weight_decay
    if settings.name in ("sgd", "nesterov"):
        return torch.optim.SGD(
            groups,
            lr=settings.rate,
            momentum=settings.momentum,
            nesterov=settings.name == "nesterov",
            weight_decay=decay,
        )
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "rmsprop": torch.optim.RMSprop}[settings.name]
    return kind(groups, lr=settings.rate, eps=settings.eps, weight_decay=decay)
