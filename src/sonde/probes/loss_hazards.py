"""Where a loss may leave its numbers: a format that ends early, and logarithms of what may be zero."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn

from sonde.core.records import Float64
from sonde.probes.apart import apart
from sonde.probes.facts import Facts
from sonde.probes.graph_nodes import RESHAPES, following, maker, named, nodes
from sonde.probes.hooks import Hooks, first_tensor, readable
from sonde.probes.inputs import feature_dim

_MOVES = RESHAPES | named("Index", "IndexSelect", "Gather", "MaskedSelect")
_MOST_NODES = 64
_NUM_READ = 3
"""Losses whose graph is read: it is the same from step to step."""
_MOST_VALUES = 2**20
_VANISHES = {torch.float16: math.inf, torch.float64: 1074 * math.log(2)}
"""The exponent at which a softmax gives exactly zero; of other formats that of float32, about 103."""
_NEAR = 0.6
_STEPS_LEFT = 100


class _Logarithm(NamedTuple):
    """What a loss takes a bare logarithm of, and the exponents of its terms at which that ends."""

    of: str
    made_by: str
    """The kind of node that made the exponents."""
    spread: float = math.inf
    """Between two classes of a row: the smaller one's probability is zero."""
    largest: float = math.inf
    """Of a class: its exponential is infinite."""


@final
class LossHazards:
    """Reads, from the loss that is given and from its graph, how near its numbers come to where they end.

    - `half-loss`: it was computed in float16 or converted to it; `value` is the largest number there, 65504.
    - `log-of-probabilities`: a logarithm is taken of a softmax, of exponentials over their sum or of such a sum, to
      which nothing was added, which nothing clamped, and of which (unless it is a softmax) nothing was subtracted
      before: it is infinite where the exponentials end. `value` is what it is of: `softmax`, `quotient` or `sum`.
    - `probabilities-vanish`: of such a loss, the model's outputs y are beyond 0.6 of where exponentials end, and at the
      pace since the first look they will be there within 100 iterations. `value` is either the largest spread of a row,
      max y − min y (of a softmax and a quotient), or the largest y (of a quotient and a sum), whichever is nearer to
      its end, `limit`; `which` is `spread` or `largest`.

    Outputs that are themselves the exponents are looked at in the iterations in which the others look and, of such a
    loss only, in every tenth: the first floating-point one, its classes being the last dimension, of images the second.
    Rows that are probabilities already count by the logarithm of their smallest. Outputs that are infinite (masked) are
    left out, and so is the spread of float16: its exponents end so early that classes which are rightly ruled out reach
    it.

    Graphs are read by names and formats of their nodes, which stay after the backward pass; no numbers, nothing waits.
    """

    def __init__(self, models: Mapping[str, nn.Module], facts: Facts, hooks: Hooks) -> None:
        self._models, self._facts, self._hooks = models, facts, hooks
        self._num_read = self._iteration = 0
        self._logarithm: _Logarithm | None = None
        self._first: tuple[int, float] | None = None
        self._exponents: Tensor | None = None

    def attach(self, iteration: int) -> None:
        """An iteration begins in which outputs may be looked at."""
        self._iteration, self._exponents = iteration, None
        if self._logarithm is not None and not self._facts.is_said("probabilities-vanish"):
            for model in self._models.values():
                self._hooks.after(model, partial(self._forwarded, self._logarithm))

    def _forwarded(self, logarithm: _Logarithm, _model: nn.Module, _args: Any, output: Any) -> None:
        found = first_tensor(output)
        if self._exponents is not None or found is None or found.grad_fn is None or not readable(found):
            return
        # Outputs are not the exponents where the loss computes something of them before.
        is_asked = maker(found.grad_fn, _MOVES).name() in (logarithm.made_by, "SoftmaxBackward0")
        if is_asked and found.dim() >= 2 and found.numel() <= _MOST_VALUES:
            with apart(found.device):
                self._exponents = _exponents(found.detach())

    def loss(self, loss: Any) -> None:
        """The loss of a micro-step, as it was given, in an iteration that is looked at."""
        if self._num_read >= _NUM_READ or not isinstance(loss, Tensor):
            return
        self._num_read += 1
        if torch.float16 in (loss.dtype, _computed_in(loss)):
            self._facts.say_once("half-loss", value=torch.finfo(torch.float16).max)
        found = _logarithm_of(loss)
        if found is not None:
            self._logarithm = found
            self._facts.say_once("log-of-probabilities", value=found.of)

    def collect(self) -> None:
        """The iteration is over."""
        exponents, self._exponents = self._exponents, None
        if exponents is not None and self._logarithm is not None:
            limits = {"spread": self._logarithm.spread, "largest": self._logarithm.largest}
            self._facts.judge([exponents], partial(self._judge, self._iteration, limits))

    def _judge(self, iteration: int, limits: Mapping[str, float], numbers: Float64) -> None:
        values = dict(zip(limits, numbers.tolist(), strict=True))
        shares = {which: values[which] / limit for which, limit in limits.items()}
        if not all(map(math.isfinite, shares.values())):  # classes that are masked are infinitely far
            return
        which = max(shares, key=shares.__getitem__)
        share = shares[which]
        self._first = self._first or (iteration, share)
        begin, at_first = self._first
        if share > _NEAR and (1 - share) * (iteration - begin) < _STEPS_LEFT * (share - at_first):
            self._facts.say_once("probabilities-vanish", value=values[which], limit=limits[which], which=which)


def _exponents(output: Tensor) -> Tensor:
    """The largest difference between two classes of a row, and the largest output."""
    wide, dim = output.float(), feature_dim(output)
    low, high = torch.aminmax(wide, dim=dim)
    are_shares = (low.amin() >= 0) & ((wide.sum(dim) - 1).abs().amax() < 1e-3)
    spread = torch.where(are_shares, -low.amin().log(), (high - low).amax())
    return torch.stack([spread, high.amax()]).double()


def _computed_in(loss: Tensor) -> torch.dtype:
    """The format of a loss, before it was converted to another one.

    Example:
        >>> weight = torch.ones(3, dtype=torch.float16, requires_grad=True)
        >>> _computed_in(weight.sum().float())
        torch.float16
    """
    return loss.dtype if loss.grad_fn is None else _dtype(maker(loss.grad_fn, _MOVES)) or loss.dtype


def _logarithm_of(loss: Tensor) -> _Logarithm | None:
    """What the loss takes a bare logarithm of, if it does.

    Example:
        >>> outputs = torch.zeros(2, 3, requires_grad=True)
        >>> _logarithm_of(-outputs.softmax(1)[:, 0].log().mean()).of, _logarithm_of(outputs.log_softmax(1).mean())
        ('softmax', None)
    """
    logarithms = (node for node in nodes(loss, _MOST_NODES) if node.name() == "LogBackward0")
    terms = (_terms(maker(inner, _MOVES)) for node in logarithms for inner in following(node))
    return next((found for found in terms if found is not None), None)


def _terms(node: Any) -> _Logarithm | None:
    """What a logarithm's argument is made of, by the node that made it."""
    name, inner = node.name(), following(node)
    if not inner:
        return None
    if name == "SoftmaxBackward0":
        return _Logarithm("softmax", maker(inner[0], _MOVES).name(), spread=_vanishes(node))
    exponents = following(inner[0])
    is_shifted = bool(exponents) and exponents[0].name().startswith("SubBackward")
    dtype = _dtype(inner[0])
    if inner[0].name() != "ExpBackward0" or not exponents or is_shifted or dtype is None:
        return None
    made_by, largest = maker(exponents[0], _MOVES).name(), math.log(torch.finfo(dtype).max)
    if name == "DivBackward0":
        return _Logarithm("quotient", made_by, _vanishes(node), largest)
    return _Logarithm("sum", made_by, largest=largest) if name.startswith("SumBackward") else None


def _vanishes(node: Any) -> float:
    return _VANISHES.get(_dtype(node) or torch.float32, 149 * math.log(2))


def _dtype(node: Any) -> torch.dtype | None:
    """Of what a node has computed; None where torch does not say."""
    about = getattr(node, "_input_metadata", ())
    dtype: torch.dtype | None = about[0].dtype if about else None
    return dtype
