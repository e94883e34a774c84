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
from sonde.probes.facts import Facts
from sonde.probes.hooks import Hooks, first_tensor, readable
from sonde.probes.inputs import feature_dim
from sonde.probes.loss_graphs import LossGraph, read
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
    """Ten, and how often each class is a target."""
    num_values: int
    tolerance: float


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

    def __init__(self, models: Mapping[str, nn.Module], facts: Facts, hooks: Hooks) -> None:
        self._models, self._facts, self._hooks = models, facts, hooks
        self._now = _Iteration()
        self._times: Counter[str] = Counter()
        self._labels = np.zeros(_MOST_CLASSES)
        self._num_batches = 0
        self.scaler_seen = False

    def attach(self) -> None:
        """An iteration begins that is looked at."""
        self._now = _Iteration()
        for model in self._models.values():
            self._hooks.after(model, self._forwarded)

    def _forwarded(self, _model: nn.Module, _args: Any, output: Any) -> None:
        found = first_tensor(output) if torch.is_grad_enabled() else None
        if found is not None and found.requires_grad and found.numel() <= _MOST_VALUES and readable(found):
            self._hooks.on_gradient(found, partial(_returned, self._now, found.detach(), found._version))

    def loss(self, loss: Any) -> None:
        """The loss of a micro-step, as it was given."""
        is_tensor = isinstance(loss, Tensor)
        self._now.graphs.append(read(loss) if is_tensor and loss.grad_fn is not None else None)
        if is_tensor and loss.numel() == 1 and readable(loss):
            self._now.losses.append(loss.detach())

    def collect(self) -> None:
        """The iteration is over."""
        now, self._now = self._now, _Iteration()
        self._judge_graphs(now)
        if now.backwards:
            device = now.backwards[0].numbers.device
            losses = now.losses if all(loss.device == device for loss in now.losses) else []
            self._facts.judge([*(b.numbers for b in now.backwards), *losses], partial(self._judge, now))

    def finish(self) -> None:
        """No more iterations: what the labels were like."""
        num = self._labels.sum()
        if num >= _LEAST_LABELS:
            shares = self._labels[self._labels > 0] / num
            self._facts.say_once("labels", value=-np.sum(shares * np.log(shares)), num=int(num))

    def _judge_graphs(self, now: _Iteration) -> None:
        graphs = [graph for graph in now.graphs if graph is not None]
        if not graphs:
            return
        first = graphs[0]
        if first.kind and len({(graph.kind, graph.num_classes) for graph in graphs}) == 1:
            self._note("loss-kind", now, value=first.kind, classes=first.num_classes)
        if all(map(_normalises_twice, graphs)):
            self._note("double-softmax", now, value=first.twice or first.given, loss=first.kind)
        if all(graph.reduction == "sum" and not graph.is_scaled for graph in graphs):
            self._note("summed-loss", now, value=first.kind)

    def _judge(self, now: _Iteration, numbers: Float64) -> None:
        num, micro = len(now.backwards), len(now.graphs)
        *rows, losses = np.split(numbers, np.cumsum([backward.numbers.numel() for backward in now.backwards]))
        losses = losses if len(losses) == num else np.full(num, math.nan)
        doubles, scales, sums = [], [], []
        for backward, row, loss, graph in zip(now.backwards, rows, losses, [*now.graphs, *[None] * num], strict=False):
            counts, tolerance = row[_NUM_NUMBERS:], backward.tolerance
            smallest, off_one, off_zero, one_negative, num_rows, positive, missing, square, *ends = row[:_NUM_NUMBERS]
            is_entropy = len(counts) > 1 and off_zero < tolerance and one_negative == 1 and num_rows > 0
            doubles.append(is_entropy and smallest >= 0 and off_one < tolerance)
            if is_entropy:
                scales.append(num_rows * positive / missing if missing > 0 else math.nan)
                sums.append(num_rows >= 4 and abs(scales[-1] / num_rows - 1) < 0.02)
                self._count(now, counts, ends)
            else:
                is_mean = graph is not None and (graph.kind, graph.reduction) == ("mse", "mean") and graph.is_whole
                scales.append(math.sqrt(square * backward.num_values / loss) / 2 if is_mean and loss > 0 else math.nan)
        if all(doubles):
            self._note("double-softmax", now, value="softmax", loss="cross-entropy")
        if self.scaler_seen:
            return
        if sums and all(sums):
            self._note("summed-loss", now, value="cross-entropy")
        is_unscaled = len(scales) == micro > 1 and all(abs(scale - 1) < 0.1 for scale in scales)
        if is_unscaled and not any(graph.is_scaled for graph in now.graphs if graph is not None):
            self._note("accumulation-not-scaled", now, value=micro)

    def _count(self, now: _Iteration, counts: Float64, ends: list[float]) -> None:
        self._labels[: len(counts)] += counts
        self._num_batches += 1
        is_enough = self._num_batches >= _LEAST_BATCHES and self._labels.sum() >= _LEAST_LABELS
        if is_enough and np.count_nonzero(self._labels) == 1 and ends[0] == ends[1]:
            self._facts.say_once("constant-labels", value=ends[0], line=now.line)

    def _note(self, check: str, now: _Iteration, **fact: Any) -> None:
        self._times[check] += 1
        if self._times[check] >= _CONFIRMED:
            self._facts.say_once(check, line=now.line, **fact)


def _normalises_twice(graph: LossGraph) -> bool:
    return graph.twice == "softmax" or (graph.kind, graph.given) in (("nll", "softmax"), ("bce-with-logits", "sigmoid"))


def _returned(now: _Iteration, output: Tensor, version: int, gradient: Tensor) -> None:
    now.line = now.line or user_line()
    if output._version == version and output.shape == gradient.shape and readable(gradient):
        is_half = gradient.dtype in (torch.float16, torch.bfloat16)
        with apart(gradient.device):
            numbers = _measure(output, gradient)
        now.backwards.append(_Backward(numbers, output.numel(), 3e-2 if is_half else 1e-3))


def _rows(values: Tensor) -> Tensor:
    """As a matrix, its columns being the classes."""
    values = torch.atleast_1d(values.detach().float())  # type: ignore[no-untyped-call]
    dim = feature_dim(values)
    return values.movedim(dim, -1).reshape(-1, values.shape[dim])


def _measure(output: Tensor, gradient: Tensor) -> Tensor:
    """The numbers of a backward pass, and how often each class is a target (of the first 1,024)."""
    y, g = _rows(output), _rows(gradient)
    alive = (g != 0).any(1)
    weight = alive.float()
    target = g.argmin(1)
    p_target = y.softmax(1).gather(1, target[:, None])[:, 0]
    numbers = (
        y.amin(),
        (y.sum(1) - 1).abs().amax(),
        g.sum(1).abs().amax() / g.abs().amax().clamp(min=1e-30),
        (((g < 0).sum(1) == 1) | ~alive).all(),
        weight.sum(),
        (g.clamp(min=0).sum(1) * weight).sum(),
        ((1 - p_target) * weight).sum(),
        g.square().sum(),
        torch.where(alive, target, y.shape[1]).amin(),
        torch.where(alive, target, -1).amax(),
    )
    num = min(y.shape[1], _MOST_CLASSES)
    classes = torch.zeros(num, device=g.device).scatter_add_(0, target.clamp(max=num - 1), weight)
    return torch.cat([torch.stack([number.double() for number in numbers]), classes.double()])
