"""What layers are given in the first iterations: inputs out of scale, not finite, and batch norms with few values."""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from sonde.core.records import Float64
from sonde.core.tags import clean_name
from sonde.probes.apart import apart
from sonde.probes.facts import Facts
from sonde.probes.hooks import Hooks, first_tensor, readable
from sonde.probes.inputs import FEATURES, WHOLE, feature_dim
from sonde.probes.stacks import user_line

_MOST_VALUES = 2**24
_FEW = 4
_LEAST_BATCHES = 4
_LEAST_LABELS = 32
_LEAST_ROWS = 16
"""Of a batch, for its features' deviations to be compared: of two rows some are always near zero."""
_CONFIRMED = 3  # iterations in a row
_ACTING = 2  # iterations; a player that explores much acts by itself now and then only
_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@final
class FirstLooks:
    """Looks at inputs, in iterations that are looked at, in the forwards that gradients are wanted for.

    - `nonfinite-input`: the first floating-point input of a model has NaN or infinite values;
    - `input-scale`: what the model's first linear or convolutional layer gets, after whatever normalises it: `value` is
      the largest standard deviation of a feature, `spread` that over the smallest, `offset` the largest magnitude of a
      feature's mean; said once, after three iterations, of whatever size they are: rules judge;
    - `constant-targets`: the targets given to `batch` were the same of all examples, in at least 4 batches of at least
      32 together; `value` is their number where they are one, `is_integer` whether they are integers. The loss need not
      be about them (pictures of one folder, lengths, zeros for a player that finds its rewards itself);
    - `acts`: in two iterations the model was called in train mode without gradients: what it is trained on comes of
      its own outputs (a player's moves, pseudo-labels), or it is looked at in between;
    - `batchnorm-few-values`: a batch norm in train mode normalised over at most 4 values a channel, three iterations in
      a row.
    """

    def __init__(self, models: Mapping[str, nn.Module], facts: Facts, hooks: Hooks) -> None:
        self._models, self._facts, self._hooks = models, facts, hooks
        self._first = {id(layer): (name, layer) for name, layer in _first_layers(models)}
        named = [pair for prefix, model in models.items() for pair in model.named_modules(prefix=prefix)]
        self._norms = {clean_name(name): module for name, module in named if isinstance(module, _BatchNorm)}
        self._num_values: dict[str, int] = {}
        """Of each channel of a batch norm, in this iteration."""
        self._in_a_row: Counter[str] = Counter()
        self._num_scales: Counter[str] = Counter()
        self._label: tuple[float, ...] | None = None
        self._num_labels = self._num_batches = 0
        self._labels_are_judged = False
        self._acted, self._num_acted = False, 0
        self._seen: set[tuple[str, str]] = set()

    def attach(self) -> None:
        """An iteration begins that is looked at."""
        self._acted, self._seen, self._num_values = False, set(), {}
        for prefix, model in self._models.items():
            self._hooks.before(model, partial(self._given, prefix))
        if max(self._num_scales.values(), default=0) < _CONFIRMED:
            for name, layer in self._first.values():
                self._hooks.before(layer, partial(self._entered, name))
        if not self._facts.is_said("batchnorm-few-values"):
            for name, norm in self._norms.items():
                self._hooks.before(norm, partial(self._normalised, name))

    def _given(self, prefix: str, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._acted |= model.training and not torch.is_grad_enabled()
        if not torch.is_grad_enabled() or ("model", prefix) in self._seen:
            return
        self._seen.add(("model", prefix))
        values = first_tensor((args, kwargs))
        if values is not None and values.numel() <= _MOST_VALUES and readable(values):
            self._facts.judge([_extremes(values)], partial(self._judge_finite, prefix, user_line()))

    def _judge_finite(self, prefix: str, line: str | None, numbers: Float64) -> None:
        if not abs(numbers).max() < float("inf"):
            self._facts.say_once("nonfinite-input", [prefix], about=prefix, value=1, line=line)

    def _entered(self, name: str, _layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        values = first_tensor((args, kwargs))
        if not torch.is_grad_enabled() or ("layer", name) in self._seen or values is None or values.dim() < 2:
            return
        self._seen.add(("layer", name))
        if values.requires_grad or values.numel() > _MOST_VALUES or not readable(values):
            return  # one that requires a gradient is not the data any more
        num_rows = values.numel() // values.shape[feature_dim(values)]
        with apart(values.device):
            numbers = [WHOLE.take(values.detach()), FEATURES.take(values.detach())]
        self._facts.judge(numbers, partial(self._judge_scale, name, num_rows))

    def _judge_scale(self, name: str, num_rows: int, numbers: Float64) -> None:
        self._num_scales[name] += 1
        if self._num_scales[name] == _CONFIRMED:
            whole, features = WHOLE.values(numbers[:-3]), FEATURES.values(numbers[-3:])
            self._facts.say(
                "input-scale",
                [name],
                value=features["feature_std_max"],
                spread=features["scale_spread"] if num_rows >= _LEAST_ROWS else None,
                offset=features["feature_mean_absmax"],
                std=whole["std"],
                mean=whole["mean"],
            )

    def _normalised(self, name: str, norm: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        values = first_tensor((args, kwargs))
        if norm.training and torch.is_grad_enabled() and values is not None and values.dim() > 1:
            num = values.numel() // max(1, values.shape[1])
            self._num_values[name] = max(num, self._num_values.get(name, 0))

    def batch(self, targets: Any) -> None:
        """Targets on their way to the loss."""
        labels = None if self._labels_are_judged else first_tensor(targets, wanted=_has_values)
        if labels is not None:
            given = partial(self._judge_labels, len(labels), not labels.is_floating_point())
            self._facts.judge([_differences(labels)], given)

    def _judge_labels(self, num: int, is_integer: bool, numbers: Float64) -> None:
        differ, *first = numbers.tolist()
        if self._label is None:
            self._label = tuple(first)
        self._num_labels += num
        self._num_batches += 1
        if differ or tuple(first) != self._label:
            self._labels_are_judged = True
        elif self._num_batches >= _LEAST_BATCHES and self._num_labels >= _LEAST_LABELS and not self._labels_are_judged:
            self._labels_are_judged = True
            smallest, largest, _ = first
            self._facts.say("constant-targets", value=smallest if smallest == largest else None, is_integer=is_integer)

    def collect(self) -> None:
        """The iteration is over."""
        few = {name: num for name, num in self._num_values.items() if num <= _FEW}
        for name in self._num_values:
            self._in_a_row[name] = self._in_a_row[name] + 1 if name in few else 0
        if lasting := [name for name in few if self._in_a_row[name] >= _CONFIRMED]:
            num = min(few[name] for name in lasting)
            self._facts.say_once("batchnorm-few-values", lasting, num=len(lasting), value=num)
        self._num_acted += self._acted
        if self._num_acted == _ACTING:
            self._facts.say_once("acts")


def _extremes(values: Tensor) -> Tensor:
    with apart(values.device):
        return torch.stack(values.detach().aminmax()).double()


def _differences(labels: Tensor) -> Tensor:
    """Whether examples differ; least, largest and mean number of the first one."""
    with apart(labels.device):
        rows = labels.detach().reshape(len(labels), -1)
        first = rows[0].double()
        return torch.stack([(rows != rows[0]).any().double(), *first.aminmax(), first.mean()])


def _has_values(tensor: Tensor) -> bool:
    is_captured = tensor.is_cuda and torch.cuda.is_current_stream_capturing()
    is_number = tensor.dtype in (torch.int64, torch.int32, torch.uint8) or readable(tensor)
    return is_number and tensor.numel() > 0 and tensor.dim() > 0 and not is_captured


def _first_layers(models: Mapping[str, nn.Module]) -> Iterator[tuple[str, nn.Module]]:
    """The first linear or convolutional layer of each model, unless its inputs are not numbers."""
    for prefix, model in models.items():
        for name, module in model.named_modules(prefix=prefix):
            if isinstance(module, (*_LAYERS, nn.Embedding, nn.EmbeddingBag)):
                if isinstance(module, _LAYERS):
                    yield clean_name(name or "model"), module
                break
