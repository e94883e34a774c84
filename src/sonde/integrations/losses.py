"""Where a loss comes from: which loss function or module computed the tensor that `backward` was called on.

Calls are remembered by the number that autograd gives to each node of its graph, so that nothing of the graph is kept
alive, and found again by walking from the loss down to it, through multiplications with plain numbers.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

_MOST_CALLS = 256
_MOST_NODES = 64
_MOST_ALONE = 4  # a reshaped logarithm of a softmax
_MOST_BETWEEN = 1_000  # between the loss that is differentiated and the first that was computed for it
_OF_CLASSES = ("cross_entropy", "nll_loss")
_OF_ELEMENTS = (
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "gaussian_nll_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "mse_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
    "soft_margin_loss",
)
_WITH_WEIGHTS = ("huber_loss", "l1_loss", "mse_loss")  # whose mean divides by the sum of their weights
_ARGUMENTS = ("input", "target", "weight", "size_average", "ignore_index", "reduce", "reduction", "label_smoothing")
_NEUTRAL = (
    "ToCopyBackward",
    "ViewBackward",
    "UnsafeViewBackward",
    "ReshapeAliasBackward",
    "SqueezeBackward",
    "UnsqueezeBackward",
    "CloneBackward",
    "AliasBackward",
    "SelectBackward",
)


class Call(NamedTuple):
    """One call of something that gives a loss."""

    source: str
    """The name of a loss function of torch, or a module's (see `Losses.module`)."""
    reduction: str
    """`mean`, `sum` or `none`, over the values; `batchmean`, the sum divided by the rows; `share` of a step's mean."""
    rows: int
    """The length of its first dimension."""
    values: int
    """How many values the loss is the mean or sum of."""
    weight: Tensor | None = None
    """What they count together where a mean divides by that and not by their number: see `weighed`."""

    @property
    def size(self) -> int | Tensor:
        """What its values count together."""
        return self.values if self.weight is None else self.weight


@dataclass(frozen=True, slots=True)
class Origin:
    """What a loss is made of.

    Args:
        call: What computed it; None where that is not known.
        factor: What its result was multiplied by afterwards.
        reason: Why the call is not known.
        unscaled: The loss before a gradient scaler, where there was one.
    """

    call: Call | None = None
    factor: float = 1.0
    reason: str = ""
    unscaled: Tensor | None = None


@final
class Losses:
    """The calls since the last step of the training thread.

    Example:
        >>> from torch.nn import functional
        >>> losses, outputs = Losses(), torch.zeros(8, 2, requires_grad=True)
        >>> loss = functional.mse_loss(outputs, torch.ones(8, 2))
        >>> losses.called("mse_loss", (outputs,), {}, loss)
        Call(source='mse_loss', reduction='mean', rows=8, values=16, weight=None)
        >>> origin = losses.origin(loss / 4)
        >>> origin.call.source, origin.factor
        ('mse_loss', 0.25)
        >>> losses.origin(loss + outputs.square().sum()).reason
        'it is put together from several parts'
    """

    def __init__(self) -> None:
        self._calls: OrderedDict[int, Call | Origin] = OrderedDict()

    def called(self, source: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Call | None:
        """A loss function was called."""
        if not isinstance(result, Tensor) or not result.is_floating_point():
            return None
        given = [thing for thing in (*args, *kwargs.values()) if isinstance(thing, Tensor) and thing.dim() > 0]
        rows = values = int(given[0].shape[0]) if given else 1
        if source in _OF_CLASSES and len(given) > 1 and not given[1].is_floating_point():
            values = given[1].numel()  # all positions
        elif source in _OF_ELEMENTS:
            values = max((thing.numel() for thing in given[:2]), default=1)
        call = Call(source, "none" if result.dim() > 0 else _reduction(kwargs), max(rows, 1), max(values, 1))
        # In the unit of a sum others are given; in that of a mean they are by themselves.
        return self._keep(weighed(call, args, kwargs) if call.reduction == "sum" else call, result)

    def module(self, source: str, rows: int, result: Tensor, *, is_share: bool = False) -> Call:
        """A module gave a single number, which may be its loss.

        Args:
            source: A name for it.
            rows: Of what it was given.
            result: The number; where a loss function gave it, up to a factor, that is what computed it.
            is_share: Whether it was told how many values the whole step has: then it gave its share of the step's mean.
        """
        call = Call(source, "share" if is_share else "mean", max(rows, 1), max(rows, 1))
        return call if self.origin(result).call is not None else self._keep(call, result)

    def scaled(self, loss: Tensor, scaled: Tensor) -> None:
        """A gradient scaler has multiplied a loss: the tensor that `backward` gets is not the loss."""
        origin = self.origin(loss)
        if scaled.grad_fn is not None:
            kept = Origin(origin.call, origin.factor, origin.reason, loss.detach())
            self._put(scaled.grad_fn._sequence_nr(), kept)

    def origin(self, loss: Tensor) -> Origin:
        """What a loss is made of, as far as its graph tells. No number on a device is looked at."""
        node: Any = loss.grad_fn
        factor = 1.0
        for _ in range(_MOST_NODES):
            if node is None:
                break
            found = self._calls.get(node._sequence_nr())
            if isinstance(found, Call):
                return Origin(found, factor)
            if found is not None:
                assert found.unscaled is not None
                unscaled = found.unscaled if factor == 1.0 else found.unscaled * factor
                return Origin(found.call, found.factor * factor, found.reason, unscaled)
            name = node.name()
            inner = [following for following, _ in node.next_functions if following is not None]
            if len(inner) > 1:
                return Origin(reason="it is put together from several parts")
            if name.startswith(("MulBackward", "DivBackward")):
                number = _number(node)
                if number is None:
                    return Origin(reason="it is multiplied by a tensor")
                factor *= number
            elif name.startswith("NegBackward"):
                factor = -factor
            elif not name.startswith(_NEUTRAL) and not name.startswith("MeanBackward"):
                return Origin(reason="no loss function of torch computes it, nor a module")
            node = inner[0] if inner else None
        return Origin(reason="no loss function of torch computes it, nor a module")

    def _keep(self, call: Call, result: Tensor) -> Call:
        if result.grad_fn is not None:
            number = result.grad_fn._sequence_nr()
            if number not in self._calls:  # else a module returns what a function gave, which knows more
                self._put(number, call)
        return call

    def _put(self, number: int, call: Call | Origin) -> None:
        self._calls[number] = call
        while len(self._calls) > _MOST_CALLS:
            self._calls.popitem(last=False)


def numbers_of(things: Iterable[Any]) -> frozenset[int]:
    """Autograd's numbers of tensors, and of what they are views or functions of alone: a few nodes down each."""
    found: set[int] = set()
    for thing in things:
        node = thing.grad_fn if isinstance(thing, Tensor) else None
        for _ in range(_MOST_ALONE):
            if node is None:
                break
            found.add(node._sequence_nr())
            inner = [following for following, _ in node.next_functions if following is not None]
            node = inner[0] if len(inner) == 1 and inner[0].next_functions else None
    return frozenset(found)


def reached(root: Any, numbers: frozenset[int]) -> frozenset[int]:
    """Which nodes of a graph, by autograd's numbers, a node is computed from; all where that would take long to tell.

    Args:
        root: Where to begin.
        numbers: Of the nodes to look for. Older nodes than these are not gone through: a node is newer than its inputs.

    Example:
        >>> outputs = torch.zeros(3, requires_grad=True)
        >>> one, other = outputs.sum(), outputs.square().sum()
        >>> first, second = numbers_of([one]), numbers_of([other])
        >>> reached((2 * one + 1).grad_fn, first | second) == first
        True
    """
    oldest = min(numbers, default=None)
    found: set[int] = set()
    seen: set[Any] = set()
    new = [root] if oldest is not None else []
    while new:
        node = new.pop()
        number = node._sequence_nr()
        if number < oldest or node in seen:
            continue
        seen.add(node)
        if len(seen) > _MOST_BETWEEN:
            return numbers
        if number in numbers:
            found.add(number)
        new += [following for following, _ in node.next_functions if following is not None]
    return frozenset(found)


def _number(node: Any) -> float | None:
    """What a node multiplies by, where that is a plain number."""
    is_first = node.next_functions[0][0] is not None
    if node.name().startswith("DivBackward") and not is_first:
        return None
    try:
        other = node._saved_other if is_first else node._saved_self
    except (AttributeError, RuntimeError):
        return None
    if isinstance(other, Tensor):
        if other.dim() > 0 or other.device.type != "cpu":
            return None
        with torch.no_grad():
            other = other.item()
    number = float(other) if isinstance(other, int | float) else None
    if number is None or number == 0:
        return None
    return 1 / number if node.name().startswith("DivBackward") else number


def weighed(call: Call, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
    """The call with what its values count together, if a mean divides by that: some launches, nobody waits.

    Of classes, a position counts the weight of its target's class, or 1; those of `ignore_index` count nothing.

    Args:
        call: As `Losses.called` gave it.
        args: Of the loss function.
        kwargs: Likewise.

    Example:
        >>> targets = torch.tensor([0, 2, -100, 2])
        >>> weighed(Call("cross_entropy", "mean", 4, 4), (torch.zeros(4, 3), targets), {}).weight
        tensor(3., dtype=torch.float64)
        >>> weights = {"weight": torch.tensor([1.0, 1.0, 0.25])}
        >>> weighed(Call("cross_entropy", "mean", 4, 4), (torch.zeros(4, 3), targets), weights).weight
        tensor(1.5000, dtype=torch.float64)
    """
    named = dict(zip(_ARGUMENTS, args, strict=False)) if call.source in _OF_CLASSES else {}
    named.update(kwargs)
    targets, weights = named.get("target"), named.get("weight")
    with torch.no_grad():
        if call.source in _WITH_WEIGHTS and isinstance(weights, Tensor):
            return call._replace(weight=weights.sum(dtype=torch.float64))
        if call.source not in _OF_CLASSES or not isinstance(targets, Tensor) or targets.is_floating_point():
            return call
        is_counted = targets != int(named.get("ignore_index", -100))
        if not isinstance(weights, Tensor):
            return call._replace(weight=is_counted.sum().double())
        each = weights[targets.where(is_counted, 0).long()]
        return call._replace(weight=each.where(is_counted, 0).sum(dtype=torch.float64))


def _reduction(kwargs: dict[str, Any]) -> str:
    if kwargs.get("size_average") is False and kwargs.get("reduce") is not False:  # as it was called before 2018
        return "sum"
    return str(kwargs.get("reduction", "mean"))
