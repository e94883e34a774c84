"""The trivial loss: what the best constant answer would cost on the targets that a loss was computed from."""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from sonde.core.frames import MISSING, Columns
from sonde.core.records import Float64
from sonde.probes.apart import apart
from sonde.probes.graph_nodes import following, maker, saved
from sonde.probes.hooks import Hooks, first_tensor, readable
from sonde.probes.inputs import thinned
from sonde.probes.loss_graphs import ABSOLUTE, SQUARE, loss_node
from sonde.probes.probe import Reading, Row
from sonde.probes.seams import BACKWARD, Backward
from sonde.probes.stopwatch import Stopwatch

_MOST_VALUES = 2**14  # answers and targets that are read, evenly spread: a mean of as many is known to 1%
_MOST_BACKWARDS = 8  # of an iteration: micro-batches
_PATIENCE = 10  # looks without a loss that is known before that is said
_EXPECTED = 8.0  # targets of a class, on average: with fewer, the entropy of a sample is far below that of the data
_UNREAD = 8  # a class in so many targets may be unseen, where all classes are alike


class _Numeric(NamedTuple):
    """A loss of numbers, element by element."""

    value: Callable[[Tensor, Tensor, Any], Tensor]
    """Of answers and targets, and of what torch has saved of the loss's settings."""
    centres: tuple[Callable[[Tensor], Tensor], ...]
    """The constants, one of which costs least: of targets as rows, for each column."""


def _mean(targets: Tensor) -> Tensor:
    return targets.mean(0)


def _median(targets: Tensor) -> Tensor:
    return targets.sort(0).values[(len(targets) - 1) // 2]  # `median` refuses deterministic algorithms on a GPU


_NUMERIC: dict[str, _Numeric] = {
    "mse": _Numeric(lambda answers, targets, _: (answers - targets).square(), (_mean,)),
    SQUARE: _Numeric(lambda answers, targets, _: (answers - targets).square(), (_mean,)),
    ABSOLUTE: _Numeric(lambda answers, targets, _: (answers - targets).abs(), (_median,)),
    "smooth-l1": _Numeric(
        lambda answers, targets, node: functional.smooth_l1_loss(
            answers, targets, reduction="none", beta=getattr(node, "_saved_beta", 1.0)
        ),
        (_mean, _median),
    ),
    "huber": _Numeric(
        lambda answers, targets, node: functional.huber_loss(
            answers, targets, reduction="none", delta=getattr(node, "_saved_delta", 1.0)
        ),
        (_mean, _median),
    ),
}


@final
class TrivialLoss:
    """What guessing would cost, and how far the loss is from it: a probe (see `Probe`) with one slot.

    When a backward pass begins, the graph of its loss still holds the answers y and the targets t of torch's own loss
    functions, or y − t where a squared or absolute difference was written out and y is a model's output. Of these,

    - `loss/trivial` is what the best constant c would cost on the targets of the same batch: for numbers the mean of
      ℓ(c, t), with a c for each column (the mean for a mean squared error, the median for an absolute one, the better
      of both for Huber's), times B/(B − 1) for B rows, since c comes from the same rows; for classes and for two of
      them the entropy of their shares, plus (K − 1)/(2B) for K classes that occur (Miller and Madow);
    - `loss/relative` is the mean of ℓ(y, t) over that: above 1 is worse than guessing, whatever the loss is scaled
      by, summed or averaged over;
    - `loss/zeros` is the mean of ℓ(0, t), for classes log C of all C of them: about where a model begins whose first
      answers are small, whatever the targets' mean is.

    Of several backward passes in an iteration the first eight count, each alike. At most 16,384 values are read, spread
    evenly over the rows. Not measured: losses with weights, sums of several terms, label smoothing, classes of which
    too few targets were seen (fewer than eight to a class that occurs, and fewer than an eighth of all classes), losses
    inside of checkpointed regions, losses other than mean squared, absolute, Huber's, smooth absolute, binary and
    common cross-entropies, and code that is compiled together with its loss.

    References:
        Miller, Note on the bias of information estimates, 1955.
    """

    yields: Mapping[str, str] = {
        "loss/trivial": "what the best constant answer costs on the targets of the batch, averaged over them",
        "loss/relative": "the loss over that: above 1 is worse than guessing",
        "loss/zeros": "what answers of zero cost on the targets of the batch: about where an untrained model begins",
    }
    num_slots = 1

    def __init__(self, models: Mapping[str, nn.Module], *, clock: Stopwatch | None = None) -> None:
        self._models = list(models.values())
        self._outputs: list[Tensor] = []
        self._hooks = Hooks(clock)
        self._columns = Columns("trivial-loss", tuple(self.yields))
        self._found: list[Tensor] = []
        self._misses = 0
        self._leave = BACKWARD.listen(_nothing, attends=False)  # else `backward` would be another one at every turn

    def arm(self, slots: Sequence[int]) -> None:
        if slots and self._hooks.is_idle:
            self._hooks.listen(BACKWARD, self._hear)
            for model in self._models:
                self._hooks.after(model, self._forwarded)

    def collect(self) -> Sequence[Reading]:
        listened = not self._hooks.is_idle
        found, self._found = self._found, []
        self._outputs = []
        self._hooks.release()
        if not found:
            self._misses += listened
            return []
        self._misses = 0
        return [Reading([torch.stack(found)], functools.partial(_report, self._columns))]

    def not_measured(self) -> Mapping[str, str]:
        if self._misses >= _PATIENCE:
            return dict.fromkeys(self.yields, f"no loss of torch that is known here, {self._misses} times in a row")
        return {}

    def close(self) -> None:
        self._models, self._outputs, self._found = [], [], []
        self._hooks.release()
        self._leave()

    def _forwarded(self, _model: nn.Module, _args: Any, output: Any) -> None:
        found = first_tensor(output)
        if found is not None and found.grad_fn is not None and len(self._outputs) < _MOST_BACKWARDS:
            self._outputs.append(found)

    def _hear(self, event: Backward) -> None:
        if event.done or len(self._found) >= _MOST_BACKWARDS:
            return
        tensors = event.tensors if isinstance(event.tensors, Tensor) else next(iter(event.tensors), None)
        if not isinstance(tensors, Tensor) or tensors.numel() != 1:
            return
        kind, node = loss_node(tensors)
        if kind:
            with apart(tensors.device):
                numbers = _measured(kind, node, self._outputs)
            if numbers is not None:
                self._found.append(numbers)


def _measured(kind: str, node: Any, outputs: Sequence[Tensor]) -> Tensor | None:
    """What the best constant, the model's own and answers of zero cost; None where that cannot be said."""
    if any(saved(node, name) is not None for name in ("weight", "pos_weight")):
        return None
    if kind in (ABSOLUTE, SQUARE):
        answers, targets = _parted(node, outputs)
    else:
        answers, targets = saved(node, "self"), saved(node, "target")
    if type(targets) is not Tensor or answers is None or not readable(answers) or targets.device != answers.device:
        return None
    if kind == "nll":
        return _of_classes(answers, targets, getattr(node, "_saved_ignore_index", -100))
    if answers.shape != targets.shape or targets.dim() == 0:
        return None
    y, t = (_rows(one).double() for one in (answers, targets))
    if len(t) < 2:
        return None
    if kind in _NUMERIC:
        loss = _NUMERIC[kind]
        costs = [loss.value(centre(t).expand_as(t), t, node).mean() for centre in loss.centres]
        trivial = torch.stack(costs).amin() * (len(t) / (len(t) - 1))
        return torch.stack([trivial, loss.value(y, t, node).mean(), loss.value(torch.zeros_like(t), t, node).mean()])
    shares = t.mean(0)
    entropy = (torch.special.entr(shares) + torch.special.entr(1 - shares)).mean()
    seen = ((shares > 0) & (shares < 1)).double().mean() / (2 * len(t))
    if kind == "bce":
        cost = functional.binary_cross_entropy(y.clamp(0, 1), t.clamp(0, 1))
    elif kind == "bce-with-logits":
        cost = functional.binary_cross_entropy_with_logits(y, t)
    else:
        return None
    return torch.stack([entropy + seen, cost, torch.full_like(cost, math.log(2))])


def _parted(node: Any, outputs: Sequence[Tensor]) -> tuple[Tensor | None, Tensor | None]:
    """The answers and targets of which only the difference is left, where a model's output is the answer."""
    difference, subtraction = saved(node, "self"), following(node)[0]
    if difference is None:
        return None, None
    made_by, is_first = maker(following(subtraction)[0]), subtraction.next_functions[0][0] is not None
    for output in outputs:
        if maker(output.grad_fn) is made_by and output.numel() == difference.numel() and readable(output):
            answers = output.detach().reshape(difference.shape)
            return answers, answers - difference if is_first else answers + difference
    return None, None


def _of_classes(answers: Tensor, targets: Tensor, ignore_index: int) -> Tensor | None:
    """Of logarithms of probabilities, whose classes are the second dimension or the only one."""
    if answers.dim() < 2 or targets.numel() < 2:
        return None
    rows = answers.movedim(1, -1).reshape(-1, answers.shape[1])
    classes = targets.reshape(-1)
    step = -(-len(classes) // _MOST_VALUES)
    rows, classes = rows[::step], classes[::step]
    kept = (classes != ignore_index).double()
    inside = classes.clamp(0, rows.shape[1] - 1)
    num = kept.sum()
    counts = torch.zeros(rows.shape[1], dtype=torch.float64, device=rows.device).scatter_add_(0, inside, kept)
    distinct = (counts > 0).sum()
    entropy = torch.special.entr(counts / num).sum() + (distinct - 1) / (2 * num)
    is_known = (num >= _EXPECTED * distinct) | (num * _UNREAD >= rows.shape[1])
    cost = -(rows.gather(1, inside[:, None])[:, 0].double() * kept).sum() / num
    untrained = math.log(rows.shape[1])
    trivial = torch.where(is_known, entropy.clamp(max=untrained), torch.nan)
    return torch.stack([trivial, cost, torch.full_like(cost, untrained)])


def _nothing(_event: Backward) -> None: ...


def _rows(values: Tensor) -> Tensor:
    """As a matrix with a row for each example, thinned to so many values."""
    values = values.detach()
    values = values[:, None] if values.dim() == 1 else values.flatten(1)
    return thinned(thinned(values, [0], _MOST_VALUES), [1], _MOST_VALUES)


def _report(columns: Columns, numbers: Float64) -> Iterator[Row]:
    trivial, cost, zeros = numbers.reshape(-1, 3).mean(0).tolist()
    if not math.isfinite(trivial):
        return
    relative = cost / trivial if trivial > 0 else float(MISSING)
    yield Row(columns, np.array([trivial, relative, zeros]))
