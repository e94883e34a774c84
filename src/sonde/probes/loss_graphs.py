"""What a loss was computed by, read from its autograd graph: names of nodes only, no numbers, nothing waits."""

from typing import Any, NamedTuple

from torch import Tensor

from sonde.probes.graph_nodes import following, maker

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
ABSOLUTE, SQUARE = "absolute-difference", "squared-difference"
"""Losses that are written out, or that torch composes so (`l1_loss`)."""
_REDUCTIONS = ("none", "mean", "sum")
_SCALING = ("DivBackward", "MulBackward", "MeanBackward")
_MAKERS = {"SoftmaxBackward0": "softmax", "LogSoftmaxBackward0": "log-softmax", "SigmoidBackward0": "sigmoid"}
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
            found = _described(node, _LOSSES[name])
            reduction = "sum" if found.reduction == "none" and summed else found.reduction
            return found._replace(reduction=reduction, is_scaled=is_scaled, is_whole=is_whole)
        is_scaled |= name.startswith(_SCALING)
        summed |= name == "SumBackward0"
        inner = following(node)
        is_whole &= sum(one.name() != "torch::autograd::AccumulateGrad" for one in inner) <= 1
        node = inner[0] if inner else None
    return LossGraph(is_scaled=is_scaled, is_whole=is_whole)


def loss_node(loss: Tensor) -> tuple[str, Any]:
    """The kind of torch's loss that a loss was computed by, and its node; empty where none is, or others were added.

    Example:
        >>> import torch
        >>> from torch.nn import functional
        >>> answers = torch.zeros(3, requires_grad=True)
        >>> loss_node(2 * functional.l1_loss(answers, torch.ones(3)))[0], loss_node(answers.sum())[0]
        ('absolute-difference', '')
    """
    node: Any = loss.grad_fn
    for _ in range(_MOST_NODES):
        if node is None or (kind := _LOSSES.get(node.name())) is not None:
            break
        if (kind := _of_difference(node)) is not None:
            break
        inner = [one for one in following(node) if one.name() != "torch::autograd::AccumulateGrad"]
        node = inner[0] if len(inner) == 1 else None
    return ("", None) if node is None or kind is None else (kind, node)


def _of_difference(node: Any) -> str | None:
    """What loss a node computes element by element from the difference of an answer and its target, if it does."""
    inner = following(node)
    if len(inner) != 1 or inner[0].name() != "SubBackward0" or len(following(inner[0])) != 1:
        return None
    if node.name() == "AbsBackward0":
        return ABSOLUTE
    is_square = node.name() == "PowBackward0" and getattr(node, "_saved_exponent", 0) == 2
    return SQUARE if is_square else None


def _described(node: Any, kind: str) -> LossGraph:
    number = getattr(node, "_saved_reduction", 1)
    reduction = _REDUCTIONS[number] if number in range(3) else ""
    given, before = _given(node)
    if kind != "nll" or given != "log-softmax":
        return LossGraph(kind, reduction, given=given)
    twice, _ = _given(before)
    twice = twice if twice != "sigmoid" else ""
    return LossGraph(kind, reduction, given=given, twice=twice, num_classes=_num_classes(before))


def _num_classes(log_softmax: Any) -> int:
    """The size of the dimension that was normalised; known after the backward pass too."""
    shapes, dim = getattr(log_softmax, "_input_metadata", ()), getattr(log_softmax, "_saved_dim", None)
    if not shapes or not isinstance(dim, int):
        return 0
    shape = shapes[0].shape
    dim -= 2**64 if dim >= 2**63 else 0  # -1 is saved without its sign
    return int(shape[dim]) if -len(shape) <= dim < len(shape) else 0


def _given(node: Any) -> tuple[str, Any]:
    """What made the first input of a node, through changes of shape, and the node that did."""
    inner = following(node)
    if not inner:
        return "", node
    made_by = maker(inner[0])
    if made_by.name() == "ExpBackward0" and _given(made_by)[0] == "log-softmax":
        return "softmax", made_by
    return _MAKERS.get(made_by.name(), ""), made_by
