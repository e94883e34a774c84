"""Where a loss may leave its numbers: a format that ends early, and logarithms of what may be zero."""

import math
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn

from sonde.core.records import Float64
from sonde.probes.apart import apart
from sonde.probes.facts import Say, settle
from sonde.probes.hooks import Hooks, first_tensor, readable
from sonde.probes.probe import Reading

# What moves numbers without changing them, as torch calls its nodes.
_MOVES = frozenset(
    f"{name}Backward{version}"
    for name in (
        *("View", "UnsafeView", "ReshapeAlias", "Transpose", "Permute", "Squeeze", "Unsqueeze", "Slice", "Select"),
        *("Expand", "Clone", "Index", "IndexSelect", "Gather", "MaskedSelect", "ToCopy"),
    )
    for version in (0, 1)
)
_MOST_NODES = 64
_NUM_READ = 3
"""Losses whose graph is read: it is the same from step to step."""
_MOST_VALUES = 2**20
_VANISHES = {torch.float16: math.inf, torch.float64: 1074 * math.log(2)}
"""The exponent at which a softmax gives exactly zero; of other formats that of float32, about 103."""
_NEAR = 0.6
_STEPS_LEFT = 100
_EVERY = 10


class _Logarithm(NamedTuple):
    """What a loss takes a bare logarithm of, and the exponents of its terms at which that ends."""

    of: str = ""
    made_by: str = ""
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

    def __init__(self, models: Mapping[str, nn.Module], say: Say, hooks: Hooks) -> None:
        self._models, self._say, self._hooks = models, say, hooks
        self._num_read = 0
        self._said: set[str] = set()
        self._logarithm = _Logarithm()
        self._iteration = -1
        self._first: tuple[int, float] | None = None
        self._exponents: Tensor | None = None

    def attach(self, *, is_armed: bool) -> None:
        """An iteration begins; `is_armed` is whether others look at it."""
        self._iteration += 1
        self._exponents = None
        if self._is_asked and (is_armed or self._iteration % _EVERY == 0):
            for model in self._models.values():
                self._hooks.after(model, self._forwarded)

    @property
    def _is_asked(self) -> bool:
        return bool(self._logarithm.of) and "probabilities-vanish" not in self._said

    def _forwarded(self, _model: nn.Module, _args: Any, output: Any) -> None:
        found = first_tensor(output)
        if self._exponents is not None or found is None or found.grad_fn is None or not readable(found):
            return
        # Outputs are not the exponents where the loss computes something of them before.
        is_asked = _maker(found.grad_fn).name() in (self._logarithm.made_by, "SoftmaxBackward0")
        if is_asked and found.dim() >= 2 and found.numel() <= _MOST_VALUES:
            with apart(found.device):
                self._exponents = _exponents(found.detach())

    def loss(self, loss: Any) -> None:
        """The loss of a micro-step, as it was given, in an iteration that is looked at."""
        if self._num_read >= _NUM_READ or not isinstance(loss, Tensor):
            return
        self._num_read += 1
        if torch.float16 in (loss.dtype, _computed_in(loss)):
            self._note("half-loss", torch.finfo(torch.float16).max)
        found = _logarithm_of(loss)
        if found.of:
            self._logarithm = found
            self._note("log-of-probabilities", found.of)

    def collect(self) -> list[Reading]:
        """The iteration is over."""
        exponents, self._exponents = self._exponents, None
        return [] if exponents is None else settle([exponents], partial(self._judge, self._iteration))

    def _judge(self, iteration: int, numbers: Float64) -> None:
        values, limits = numbers.tolist(), (self._logarithm.spread, self._logarithm.largest)
        shares = [value / limit for value, limit in zip(values, limits, strict=True)]
        if not all(map(math.isfinite, shares)):  # classes that are masked are infinitely far
            return
        share = max(shares)
        if self._first is None:
            self._first = iteration, share
        begin, at_first = self._first
        if share > _NEAR and (1 - share) * (iteration - begin) < _STEPS_LEFT * (share - at_first):
            place = shares.index(share)
            which = ("spread", "largest")[place]
            self._note("probabilities-vanish", values[place], limit=limits[place], which=which)

    def _note(self, check: str, value: Any, **more: Any) -> None:
        if check not in self._said:
            self._said.add(check)
            self._say(check, {"where": [], "value": value, **more})


def _exponents(output: Tensor) -> Tensor:
    """The largest difference between two classes of a row, and the largest output."""
    dim = -1 if output.dim() <= 3 else 1
    wide = output.float()
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
    return loss.dtype if loss.grad_fn is None else _dtype(_maker(loss.grad_fn)) or loss.dtype


def _logarithm_of(loss: Tensor) -> _Logarithm:
    """What the loss takes a bare logarithm of, if it does.

    Example:
        >>> outputs = torch.zeros(2, 3, requires_grad=True)
        >>> _logarithm_of(-outputs.softmax(1)[:, 0].log().mean()).of, _logarithm_of(outputs.log_softmax(1).mean()).of
        ('softmax', '')
    """
    waiting: deque[Any] = deque([loss.grad_fn])
    for _ in range(_MOST_NODES):
        node = waiting.popleft() if waiting else None
        if node is None:
            break
        following = _following(node)
        if node.name() == "LogBackward0" and following:
            found = _terms(following[0])
            if found.of:
                return found
        waiting.extend(following)
    return _Logarithm()


def _terms(node: Any) -> _Logarithm:
    """What a logarithm's argument is made of."""
    for _ in range(_MOST_NODES):
        name, following = node.name(), _following(node)
        if not following:
            break
        if name == "SoftmaxBackward0":
            return _Logarithm("softmax", _maker(following[0]).name(), spread=_vanishes(node))
        if name == "DivBackward0" or name.startswith("SumBackward"):
            limit = _overflows(following[0])
            if not limit:
                break
            made_by = _maker(_following(following[0])[0]).name()
            if name == "DivBackward0":
                return _Logarithm("quotient", made_by, _vanishes(node), limit)
            return _Logarithm("sum", made_by, largest=limit)
        if name not in _MOVES:
            break
        node = following[0]
    return _Logarithm()


def _overflows(node: Any) -> float:
    """From which exponent on the exponential that a node is of is infinite; 0 where it is none, or was shifted."""
    following = _following(node)
    if node.name() != "ExpBackward0" or not following or following[0].name().startswith("SubBackward"):
        return 0.0
    dtype = _dtype(node)
    return math.log(torch.finfo(dtype).max) if dtype is not None else 0.0


def _vanishes(node: Any) -> float:
    dtype = _dtype(node)
    return 149 * math.log(2) if dtype is None else _VANISHES.get(dtype, 149 * math.log(2))


def _maker(node: Any) -> Any:
    """The node that computed what some nodes have only moved since."""
    while node.name() in _MOVES and _following(node):
        node = _following(node)[0]
    return node


def _following(node: Any) -> list[Any]:
    return [inner for inner, _ in node.next_functions if inner is not None]


def _dtype(node: Any) -> torch.dtype | None:
    """Of what a node has computed; None where torch does not say."""
    about = getattr(node, "_input_metadata", ())
    dtype: torch.dtype | None = about[0].dtype if about else None
    return dtype
