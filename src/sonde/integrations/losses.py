"""Where a loss comes from: which loss function or module computed the tensor that `backward` was called on.

Calls are remembered by the number that autograd gives to each node of its graph, so that nothing of the graph is kept
alive, and found again by walking from the loss down to it, through multiplications with plain numbers.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

_MOST_CALLS = 256
_MOST_NODES = 64
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
    """`mean` or `sum`, over the rows."""
    rows: int
    """How many values the loss is the mean or sum of."""


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
        Call(source='mse_loss', reduction='mean', rows=8)
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
        rows = int(given[0].shape[0]) if given else 1
        if source in ("cross_entropy", "nll_loss") and len(given) > 1 and not given[1].is_floating_point():
            rows = given[1].numel()  # the mean is over all positions
        reduction = "sum" if result.numel() == 1 and _reduction(kwargs) == "sum" else "mean"
        return self._keep(Call(source, reduction, max(rows, 1)), result)

    def module(self, source: str, rows: int, result: Tensor) -> Call:
        """A module gave a single number, which may be its loss."""
        return self._keep(Call(source, "mean", max(rows, 1)), result)

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


def _reduction(kwargs: dict[str, Any]) -> str:
    if kwargs.get("size_average") is False and kwargs.get("reduce") is not False:  # as it was called before 2018
        return "sum"
    return str(kwargs.get("reduction", "mean"))
