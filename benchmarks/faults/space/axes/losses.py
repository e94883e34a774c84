"""Losses of outputs and targets, and the losses of the trivial predictor."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

Criterion = Callable[[Tensor, Tensor, str], Tensor]


def cross_entropy(outputs: Tensor, targets: Tensor, reduction: str) -> Tensor:
    """Of logits whose last dimension are classes."""
    return functional.cross_entropy(outputs.flatten(0, -2), targets.flatten(), reduction=reduction)


def smoothed(outputs: Tensor, targets: Tensor, reduction: str) -> Tensor:
    """The same with labels that are a little unsure."""
    flat = outputs.flatten(0, -2)
    return functional.cross_entropy(flat, targets.flatten(), reduction=reduction, label_smoothing=0.05)


def nll(outputs: Tensor, targets: Tensor, reduction: str) -> Tensor:
    """The same, written in two steps."""
    return functional.nll_loss(torch.log_softmax(outputs.flatten(0, -2), -1), targets.flatten(), reduction=reduction)


def mse(outputs: Tensor, targets: Tensor, reduction: str) -> Tensor:
    """Squared distance."""
    return functional.mse_loss(outputs, targets, reduction=reduction)


def huber(outputs: Tensor, targets: Tensor, reduction: str) -> Tensor:
    """Squared where near, linear where far."""
    return functional.smooth_l1_loss(outputs, targets, reduction=reduction)


def l1(outputs: Tensor, targets: Tensor, reduction: str) -> Tensor:
    """Distance."""
    return functional.l1_loss(outputs, targets, reduction=reduction)


def pairwise_margin(outputs: Tensor, targets: Tensor, reduction: str) -> Tensor:
    """Scores [batch, 2] should lie apart by a margin in the direction that targets, +1 or -1, say."""
    return functional.margin_ranking_loss(outputs[:, 0], outputs[:, 1], targets, margin=1.0, reduction=reduction)


def pairwise_logistic(outputs: Tensor, targets: Tensor, reduction: str) -> Tensor:
    """The same with a smooth loss."""
    loss = functional.softplus(-targets * (outputs[:, 0] - outputs[:, 1]))
    return loss.mean() if reduction == "mean" else loss.sum()


def info_nce(outputs: Tensor, targets: Tensor, reduction: str) -> Tensor:
    """Two views [batch, 2, dim] of an example are to be nearer than those of different ones; targets are not used."""
    first, second = functional.normalize(outputs, dim=-1).unbind(1)
    logits = first @ second.T / 0.2
    return functional.cross_entropy(logits, torch.arange(len(logits)), reduction=reduction)


CRITERIA: dict[str, Criterion] = {
    "cross-entropy": cross_entropy, "smoothed": smoothed, "nll": nll, "mse": mse, "huber": huber, "l1": l1,
    "margin": pairwise_margin, "logistic": pairwise_logistic, "info-nce": info_nce,
}  # fmt: skip

CHOICES: dict[str, tuple[str, ...]] = {
    "classes": ("cross-entropy", "cross-entropy", "smoothed", "nll"),
    "numbers": ("mse", "mse", "huber", "l1"),
    "tokens": ("cross-entropy", "cross-entropy", "nll"),
    "noise": ("mse", "huber"),
    "pairs": ("margin", "logistic"),
    "views": ("info-nce",),
}
"""Which losses fit which kind of targets."""

SOFTMAX = frozenset({"cross-entropy", "smoothed", "nll"})
"""Those of logits."""


def draw(rng: Any, targets: str) -> str:
    """A loss for targets of this kind."""
    return rng.choice(CHOICES[targets])
