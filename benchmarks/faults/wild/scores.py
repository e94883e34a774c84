"""Held-out qualities, 1 for perfect and 0 for the trivial predictor."""

import torch
from torch import Tensor


def explained(guess: Tensor, truth: Tensor) -> float:
    """The share of the variance that is explained."""
    return float(1 - (guess - truth).square().mean() / (truth - truth.mean(0)).square().mean())


def accuracy(guess: Tensor, truth: Tensor) -> float:
    """The accuracy, above that of the most frequent class."""
    most = float(torch.bincount(truth.flatten().long()).max() / truth.numel())
    return (float((guess == truth).float().mean()) - most) / (1 - most)


def gained(loss: Tensor | float, trivial: Tensor | float, best: Tensor | float = 0.0) -> float:
    """How far a loss has come from the trivial one to the best one."""
    return float((trivial - loss) / (trivial - best))


def ordered(risk: Tensor, rank: Tensor) -> float:
    """Concordance: 1 where all pairs are in order, 0 by chance."""
    signs = torch.sign(risk[:, None] - risk[None]) * torch.sign(rank[:, None] - rank[None])
    return float(signs.sum() / signs.abs().sum().clamp(min=1))
