"""What the loss does with a model's output, told from the output and its gradient alone."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from sonde.core.records import Float64
from sonde.probes.apart import apart
from sonde.probes.facts import Say, settle
from sonde.probes.hooks import Hooks, first_tensor, readable
from sonde.probes.loss_graphs import LossGraph, read
from sonde.probes.probe import Reading
from sonde.probes.stacks import user_line

_MOST_VALUES = 2**20
_MOST_CLASSES = 1024
_CONFIRMED = 2  # iterations in a row
_NUM_NUMBERS = 10
_LEAST_LABELS = 32
_LEAST_BATCHES = 4


@dataclass
class _Backward:
    """One backward pass through a model's output."""

    numbers: Tensor
    classes: Tensor
    num_classes: int
    num_values: int
    is_half: bool


@dataclass
class _Iteration:
    backwards: list[_Backward] = field(default_factory=list)
    graphs: list[LossGraph | None] = field(default_factory=list)
    losses: list[Tensor] = field(default_factory=list)
    line: str | None = None


@final
class OutputGradients:
    """Reads, at the first floating-point output y of a model, what comes back: G = ∂(what `backward` was called on)/∂y.

    A cross-entropy of logits y with targets t, averaged over B rows and multiplied by s, gives

        G_bc = s·(softmax(y_b)_c − [c = t_b])/B

    whose rows sum to 0 and have exactly one negative entry, at t_b. Where all rows that are not zero look so, targets
    are known, and so is s = B·Σ_b Σ_{c≠t} G_bc / Σ_b (1 − softmax(y_b)_t). For a mean squared error L of N values,
    s = ‖G‖/(2·√(L/N)). From these and from the graph of the loss that is given to `loss`:

    - `double-softmax`: rows of y are probabilities, and G is that of a cross-entropy of logits; or the graph says so.
    - `summed-loss`: the graph says so; or s = B.
    - `accumulation-not-scaled`: several micro-steps to a step, each with s = 1, and nothing divided in the graph.
    - `constant-labels`: all targets of at least 4 batches were the same.
    - `labels`: entropy and number of the targets that were seen, at the end.
    - `loss-kind`: which loss of torch the graph ends in, where it is the same in all graphs: `value`, such as `nll`,
      and `classes`, the number of its classes.

    The classes are the last dimension of y, of images the second. Label smoothing and mixed targets have several
    negative entries to a row: nothing is said of them. Under a gradient scaler s is not known.
    """

    def __init__(self, models: Mapping[str, nn.Module], say: Say, hooks: Hooks) -> None:
        self._models, self._say, self._hooks = models, say, hooks
        self._now = _Iteration()
        self._in_a_row: Counter[str] = Counter()
        self._said: set[str] = set()
        self._labels = np.zeros(_MOST_CLASSES)
        self._num_batches = 0
        self.scaler_seen = False

    def attach(self) -> None:
        """An iteration begins that is looked at."""
        self._now = _Iteration()
        for model in self._models.values():
            self._hooks.after(model, self._forwarded)

    def _forwarded(self, _model: nn.Module, _args: Any, output: Any) -> None:
        if not torch.is_grad_enabled():
            return
        found = first_tensor(output)
        if found is None or not found.requires_grad or found.numel() > _MOST_VALUES or not readable(found):
            return
        self._hooks.on_gradient(found, partial(self._returned, self._now, found.detach(), found._version))

    def _returned(self, now: _Iteration, output: Tensor, version: int, gradient: Tensor) -> None:
        now.line = now.line or user_line()
        if output._version != version or output.shape != gradient.shape or not readable(gradient):
            return
        with apart(gradient.device):
            numbers, classes = _measure(output, gradient)
        is_half = gradient.dtype in (torch.float16, torch.bfloat16)
        num_classes = output.shape[_class_dim(output)] if output.dim() else 1
        now.backwards.append(_Backward(numbers, classes, num_classes, output.numel(), is_half))

    def loss(self, loss: Any) -> None:
        """The loss of a micro-step, as it was given."""
        if not isinstance(loss, Tensor):
            self._now.graphs.append(None)
            return
        self._now.graphs.append(read(loss) if loss.grad_fn is not None else None)
        if loss.numel() == 1 and readable(loss):
            self._now.losses.append(loss.detach())

    def collect(self) -> list[Reading]:
        """The iteration is over."""
        now, self._now = self._now, _Iteration()
        self._judge_graphs(now)
        if not now.backwards:
            return []
        device = now.backwards[0].numbers.device
        losses = now.losses if all(loss.device == device for loss in now.losses) else []
        tensors = [part for b in now.backwards for part in (b.numbers, b.classes)] + losses
        return settle(tensors, partial(self._judge, now, len(losses)))

    def finish(self) -> None:
        """No more iterations: what the labels were like."""
        if self._labels.sum() >= _LEAST_LABELS and "labels" not in self._said:
            self._said.add("labels")
            shares = self._labels[self._labels > 0] / self._labels.sum()
            entropy = float(-np.sum(shares * np.log(shares)))
            self._say("labels", {"where": [], "value": entropy, "num": int(self._labels.sum())})

    def _judge_graphs(self, now: _Iteration) -> None:
        graphs = [graph for graph in now.graphs if graph is not None]
        twice = graphs and all(
            graph.twice == "softmax"
            or (graph.kind == "nll" and graph.given == "softmax")
            or (graph.kind == "bce-with-logits" and graph.given == "sigmoid")
            for graph in graphs
        )
        summed = graphs and all(graph.reduction == "sum" and not graph.is_scaled for graph in graphs)
        kinds = {(graph.kind, graph.num_classes) for graph in graphs}
        if len(kinds) == 1 and graphs[0].kind:
            self._note("loss-kind", now, value=graphs[0].kind, classes=graphs[0].num_classes)
        if twice:
            self._note("double-softmax", now, value=graphs[0].twice or graphs[0].given, loss=graphs[0].kind)
        if summed:
            self._note("summed-loss", now, value=graphs[0].kind)

    def _judge(self, now: _Iteration, num_losses: int, numbers: Float64) -> None:
        losses = numbers[len(numbers) - num_losses :]
        entropies, scales, sums, place = [], [], [], 0
        for i, backward in enumerate(now.backwards):
            row = numbers[place : place + _NUM_NUMBERS]
            counts = numbers[place + _NUM_NUMBERS : place + _NUM_NUMBERS + backward.classes.numel()]
            place += _NUM_NUMBERS + backward.classes.numel()
            tolerance = 3e-2 if backward.is_half else 1e-3
            smallest, off_one, off_zero, one_negative, num_rows, positive, missing, square, first, last = row
            is_entropy = backward.num_classes > 1 and off_zero < tolerance and one_negative == 1 and num_rows > 0
            entropies.append(is_entropy and smallest >= 0 and off_one < tolerance)
            if is_entropy:
                scale = num_rows * positive / missing if missing > 0 else math.nan
                scales.append(scale)
                sums.append(num_rows >= 4 and abs(scale / num_rows - 1) < 0.02)
                self._count(now, counts, first, last)
            else:
                scales.append(self._scale_of_mse(now, i, losses, square, backward.num_values))
        if entropies and all(entropies):
            self._note("double-softmax", now, value="softmax", loss="cross-entropy")
        if sums and all(sums) and not self.scaler_seen:
            self._note("summed-loss", now, value="cross-entropy")
        graphs = [graph for graph in now.graphs if graph is not None]
        micro = len(now.graphs)
        unscaled = len(scales) == micro > 1 and all(abs(scale - 1) < 0.1 for scale in scales)
        if unscaled and not self.scaler_seen and not any(graph.is_scaled for graph in graphs):
            self._note("accumulation-not-scaled", now, value=micro)

    def _scale_of_mse(self, now: _Iteration, i: int, losses: Float64, square: float, num: int) -> float:
        graph = now.graphs[i] if i < len(now.graphs) else None
        usable = graph is not None and graph.kind == "mse" and graph.reduction == "mean" and graph.is_whole
        if not usable or graph is None or graph.is_scaled or len(losses) != len(now.backwards) or not losses[i] > 0:
            return math.nan
        return math.sqrt(square) / (2 * math.sqrt(losses[i] / num))

    def _count(self, now: _Iteration, counts: Float64, first: float, last: float) -> None:
        self._labels[: len(counts)] += counts
        self._num_batches += 1
        seen = int(np.count_nonzero(self._labels))
        enough = self._num_batches >= _LEAST_BATCHES and self._labels.sum() >= _LEAST_LABELS
        if enough and seen == 1 and first == last and "constant-labels" not in self._said:
            self._said.add("constant-labels")
            self._say("constant-labels", {"where": [], "value": first, "line": now.line})

    def _note(self, check: str, now: _Iteration, **more: Any) -> None:
        self._in_a_row[check] += 1
        if self._in_a_row[check] >= _CONFIRMED and check not in self._said:
            self._said.add(check)
            self._say(check, {"where": [], "line": now.line, **more})


def _class_dim(output: Tensor) -> int:
    return -1 if output.dim() <= 3 else 1


def _measure(output: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """The numbers of a backward pass, and how often each class is a target (of the first 1,024)."""
    y, g = output.detach().float(), gradient.detach().float()
    y, g = (
        x.movedim(_class_dim(x), -1).reshape(-1, x.shape[_class_dim(x)]) if x.dim() else x[None, None] for x in (y, g)
    )
    alive = (g != 0).any(1)
    weight = alive.float()
    target = g.argmin(1)
    p_target = y.softmax(1).gather(1, target[:, None])[:, 0]
    one_negative = (((g < 0).sum(1) == 1) | ~alive).all()
    largest = g.abs().amax()
    numbers = (
        y.amin(),
        (y.sum(1) - 1).abs().amax(),
        g.sum(1).abs().amax() / largest.clamp(min=1e-30),
        one_negative,
        weight.sum(),
        (g.clamp(min=0).sum(1) * weight).sum(),
        ((1 - p_target) * weight).sum(),
        g.square().sum(),
        torch.where(alive, target, y.shape[1]).amin(),
        torch.where(alive, target, -1).amax(),
    )
    num = min(y.shape[1], _MOST_CLASSES)
    classes = torch.zeros(num, device=g.device).scatter_add_(0, target.clamp(max=num - 1), weight)
    return torch.stack([number.double() for number in numbers]), classes
