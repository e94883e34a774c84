"""What a loss was computed by, read from its autograd graph: names of nodes only, no numbers, nothing waits."""

from typing import Any, NamedTuple

from torch import Tensor

# What torch calls its nodes; those of losses carry their reduction, in torch's numbering.
_LOSSES = {
    "NllLossBackward0": "nll",
    "NllLoss2DBackward0": "nll",
    "MseLossBackward0": "mse",
    "L1LossBackward0": "l1",
    "SmoothL1LossBackward0": "smooth-l1",
    "HuberLossBackward0": "huber",
    "BinaryCrossEntropyBackward0": "bce",
    "BinaryCrossEntropyWithLogitsBackward0": "bce-with-logits",
    "KlDivBackward0": "kl-div",
}
_REDUCTIONS = ("none", "mean", "sum")
_SCALING = ("DivBackward", "MulBackward", "MeanBackward")
_PLAIN = (
    "ViewBackward0",
    "UnsafeViewBackward0",
    "ReshapeAliasBackward0",
    "TransposeBackward0",
    "PermuteBackward0",
    "SqueezeBackward0",
    "SqueezeBackward1",
    "UnsqueezeBackward0",
    "ToCopyBackward0",
    "SliceBackward0",
    "SelectBackward0",
    "ExpandBackward0",
    "CloneBackward0",
)
_MOST_NODES = 32


class LossGraph(NamedTuple):
    """How a loss came about.

    Attributes:
        kind: The loss of torch that was found, such as `nll`; empty where none was.
        reduction: `none`, `mean` or `sum`, of that loss or of a sum right after it.
        is_scaled: Whether something was multiplied or divided after it.
        is_whole: Whether nothing else was added to it.
        given: What made the loss's input, of `softmax` (or exp of `log-softmax`), `log-softmax` and `sigmoid`; empty
            for anything else.
        twice: Whether a cross-entropy normalises what is normalised already: `softmax` or `log-softmax` before it.
        num_classes: Of a cross-entropy; 0 where it is not known.
    """

    kind: str = ""
    reduction: str = ""
    is_scaled: bool = False
    is_whole: bool = True
    given: str = ""
    twice: str = ""
    num_classes: int = 0


def read(loss: Tensor) -> LossGraph:
    """The graph of a loss, also after its backward pass.

    Example:
        >>> import torch
        >>> from torch.nn import functional
        >>> outputs = torch.randn(4, 3, requires_grad=True)
        >>> loss = functional.cross_entropy(outputs.softmax(1), torch.tensor([0, 1, 2, 0]), reduction="sum") / 2
        >>> graph = read(loss)
        >>> graph.kind, graph.reduction, graph.is_scaled, graph.twice, graph.num_classes
        ('nll', 'sum', True, 'softmax', 3)
    """
    node: Any = loss.grad_fn
    is_scaled = summed = False
    is_whole = True
    for _ in range(_MOST_NODES):
        if node is None:
            break
        name = node.name()
        if name in _LOSSES:
            return _described(node, _LOSSES[name], is_scaled=is_scaled, summed=summed, is_whole=is_whole)
        is_scaled |= name.startswith(_SCALING)
        summed |= name == "SumBackward0"
        inner = [following for following, _ in node.next_functions if following is not None]
        is_whole &= len([i for i in inner if i.name() != "torch::autograd::AccumulateGrad"]) <= 1
        node = inner[0] if inner else None
    return LossGraph(is_scaled=is_scaled, is_whole=is_whole)


def _described(node: Any, kind: str, *, is_scaled: bool, summed: bool, is_whole: bool) -> LossGraph:
    number = getattr(node, "_saved_reduction", 1)
    reduction = _REDUCTIONS[number] if isinstance(number, int) and 0 <= number < 3 else ""
    if reduction == "none" and summed:
        reduction = "sum"
    given, before = _maker(node)
    twice, num_classes = "", 0
    if kind == "nll" and given == "log-softmax" and before is not None:
        twice = _maker(before)[0]
        num_classes = _num_classes(before)
    return LossGraph(kind, reduction, is_scaled, is_whole, given, twice if twice != "sigmoid" else "", num_classes)


def _num_classes(log_softmax: Any) -> int:
    """The size of the dimension that was normalised; known after the backward pass too."""
    shapes, dim = getattr(log_softmax, "_input_metadata", ()), getattr(log_softmax, "_saved_dim", None)
    if not shapes or not isinstance(dim, int):
        return 0
    shape = shapes[0].shape
    dim -= 2**64 if dim >= 2**63 else 0  # -1 is saved without its sign
    return int(shape[dim]) if -len(shape) <= dim < len(shape) else 0


def _maker(node: Any) -> tuple[str, Any]:
    """What made the first input of a node, through changes of shape."""
    names = {"SoftmaxBackward0": "softmax", "LogSoftmaxBackward0": "log-softmax", "SigmoidBackward0": "sigmoid"}
    for _ in range(_MOST_NODES):
        following = node.next_functions[0][0] if node.next_functions else None
        if following is None:
            return "", None
        name = following.name()
        if name in names:
            return names[name], following
        if name == "ExpBackward0" and _maker(following)[0] == "log-softmax":
            return "softmax", following
        if name not in _PLAIN:
            return "", None
        node = following
    return "", None
