"""What layers are given in the first iterations: inputs out of scale, not finite, and batch norms with few values."""

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from sonde.core.records import Float64
from sonde.core.tags import clean_name
from sonde.probes.apart import apart
from sonde.probes.facts import MOST_PLACES, Say, settle
from sonde.probes.hooks import Hooks, first_tensor, readable
from sonde.probes.inputs import FEATURES, WHOLE
from sonde.probes.probe import Reading
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
    - `constant-labels`: the targets given to `batch` were one number in at least 4 batches of at least 32 together;
      `constant-integers` where they are integers, which the loss need not be about (pictures of one folder, lengths, a
      mask);
    - `acts`: in two iterations the model was called in train mode without gradients: what it is trained on comes of
      its own outputs (a player's moves, pseudo-labels), or it is looked at in between;
    - `batchnorm-few-values`: a batch norm in train mode normalised over at most 4 values a channel, three iterations in
      a row.
    """

    def __init__(self, models: Mapping[str, nn.Module], say: Say, hooks: Hooks) -> None:
        self._models, self._say, self._hooks = models, say, hooks
        self._first = {id(layer): (name, layer) for name, layer in _first_layers(models)}
        self._norms = {
            clean_name(".".join(filter(None, (prefix, name)))): module
            for prefix, model in models.items()
            for name, module in model.named_modules()
            if isinstance(module, _BatchNorm)
        }
        self._few: dict[str, int] = {}
        self._in_a_row: Counter[str] = Counter()
        self._scales: dict[str, int] = {}
        self._pending: list[Reading] = []
        self._label: float | None = None
        self._num_labels = self._num_batches = 0
        self._acted, self._num_acted = False, 0
        self._seen: set[str] = set()
        self._said: set[str] = set()

    def attach(self) -> None:
        """An iteration begins that is looked at."""
        self._acted = False
        self._seen = set()
        self._few = {}
        for prefix, model in self._models.items():
            self._hooks.before(model, partial(self._given, prefix))
        if "input-scale" not in self._said:
            for name, layer in self._first.values():
                self._hooks.before(layer, partial(self._entered, name))
        if "batchnorm-few-values" not in self._said:
            for name, norm in self._norms.items():
                self._hooks.before(norm, partial(self._normalised, name))

    def _given(self, prefix: str, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._acted |= model.training and not torch.is_grad_enabled()
        if not torch.is_grad_enabled() or f"model {prefix}" in self._seen:
            return
        self._seen.add(f"model {prefix}")
        values = first_tensor((args, kwargs))
        if values is None or values.numel() > _MOST_VALUES or not readable(values):
            return
        with apart(values.device):
            smallest, largest = values.detach().aminmax()
            numbers = torch.stack([smallest, largest]).double()
        self._pending += settle([numbers], partial(self._judge_finite, prefix, user_line()))

    def _judge_finite(self, prefix: str, line: str | None, numbers: Float64) -> None:
        check = f"nonfinite {prefix}"
        if not abs(numbers).max() < float("inf") and check not in self._said:
            self._said.add(check)
            self._say("nonfinite-input", {"where": [prefix] if prefix else [], "value": 1, "line": line})

    def _entered(self, name: str, _layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        values = first_tensor((args, kwargs))
        if not torch.is_grad_enabled() or f"layer {name}" in self._seen or values is None or values.dim() < 2:
            return
        self._seen.add(f"layer {name}")
        if values.requires_grad or values.numel() > _MOST_VALUES or not readable(values):
            return  # one that requires a gradient is not the data any more
        with apart(values.device):
            plain = values.detach()
            numbers = [WHOLE.take(plain), FEATURES.take(plain)]
        self._pending += settle(numbers, partial(self._judge_scale, name, _num_rows(plain)))

    def _judge_scale(self, name: str, num_rows: int, numbers: Float64) -> None:
        self._scales[name] = self._scales.get(name, 0) + 1
        if self._scales[name] != _CONFIRMED:
            return
        self._said.add("input-scale")
        whole, features = WHOLE.values(numbers[:-3]), FEATURES.values(numbers[-3:])
        spread = features["scale_spread"]
        fact = {
            "where": [name],
            "value": features["feature_std_max"],
            "spread": spread if num_rows >= _LEAST_ROWS else None,
            "offset": features["feature_mean_absmax"],
            "std": whole["std"],
            "mean": whole["mean"],
        }
        self._say("input-scale", fact)

    def _normalised(self, name: str, norm: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        values: Tensor | None = first_tensor((args, kwargs))
        if norm.training and torch.is_grad_enabled() and values is not None and values.dim() > 1:
            num = values.numel() // max(1, values.shape[1])
            self._few[name] = max(num, self._few.get(name, 0))

    def batch(self, targets: Any) -> None:
        """Targets on their way to the loss."""
        labels = first_tensor(targets, wanted=_has_values)
        if labels is None or "constant-labels" in self._said:
            return
        with apart(labels.device):
            pair = labels.detach().aminmax()
            numbers = torch.stack(list(pair)).double()
        named = not labels.is_floating_point()
        self._pending += settle([numbers], partial(self._judge_labels, labels.numel(), named))

    def _judge_labels(self, num: int, named: bool, numbers: Float64) -> None:
        smallest, largest = numbers.tolist()
        if self._label is None:
            self._label = smallest
        if smallest != largest or smallest != self._label:
            self._said.add("constant-labels")  # known not to be
            return
        self._num_labels += num
        self._num_batches += 1
        if self._num_batches >= _LEAST_BATCHES and self._num_labels >= _LEAST_LABELS:
            self._said.add("constant-labels")
            self._say("constant-integers" if named else "constant-labels", {"where": [], "value": smallest})

    def collect(self) -> list[Reading]:
        """The iteration is over."""
        few = {name: num for name, num in self._few.items() if num <= _FEW}
        for name in self._few:
            self._in_a_row[name] = self._in_a_row[name] + 1 if name in few else 0
        lasting = [name for name in few if self._in_a_row[name] >= _CONFIRMED]
        if lasting and "batchnorm-few-values" not in self._said:
            self._said.add("batchnorm-few-values")
            num = min(few[name] for name in lasting)
            self._say("batchnorm-few-values", {"where": lasting[:MOST_PLACES], "num": len(lasting), "value": num})
        self._num_acted += self._acted
        if self._num_acted == _ACTING and "acts" not in self._said:
            self._said.add("acts")
            self._say("acts", {"where": []})
        pending, self._pending = self._pending, []
        return pending


def _num_rows(values: Tensor) -> int:
    """How many values a feature has."""
    return values.numel() // max(1, values.shape[-1 if values.dim() <= 3 else 1])


def _has_values(tensor: Tensor) -> bool:
    is_number = tensor.dtype in (torch.int64, torch.int32, torch.uint8) or readable(tensor)
    return is_number and tensor.numel() > 0 and tensor.dim() > 0 and not (tensor.is_cuda and _capturing())


def _capturing() -> bool:
    return torch.cuda.is_current_stream_capturing()


def _first_layers(models: Mapping[str, nn.Module]) -> list[tuple[str, nn.Module]]:
    found: list[tuple[str, nn.Module]] = []
    for prefix, model in models.items():
        for name, module in model.named_modules():
            if isinstance(module, nn.Embedding | nn.EmbeddingBag):
                break  # its inputs are not numbers
            if isinstance(module, _LAYERS):
                found.append((clean_name(".".join(filter(None, (prefix, name))) or "model"), module))
                break
    return found
