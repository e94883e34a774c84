"""Walking through autograd graphs by the names of their nodes, which stay after the backward pass; nothing waits."""

from collections import deque
from collections.abc import Iterator
from typing import Any

from torch import Tensor


def named(*operations: str) -> frozenset[str]:
    """What torch calls the nodes of some operations.

    Example:
        >>> sorted(named("View"))
        ['ViewBackward0', 'ViewBackward1']
    """
    return frozenset(f"{operation}Backward{version}" for operation in operations for version in (0, 1))


RESHAPES = named(
    *("View", "UnsafeView", "ReshapeAlias", "Transpose", "Permute", "Squeeze", "Unsqueeze", "Slice", "Select"),
    *("Expand", "Clone", "ToCopy"),
)
"""Nodes that give the numbers that they get, in another shape or format."""


def following(node: Any) -> list[Any]:
    """The nodes that made what a node got."""
    return [inner for inner, _ in node.next_functions if inner is not None]


def nodes(loss: Tensor, most: int) -> Iterator[Any]:
    """The nodes of a loss's graph, the nearest first, each once, at most so many."""
    waiting: deque[Any] = deque([] if loss.grad_fn is None else [loss.grad_fn])
    seen = set(waiting)
    for _ in range(most):
        if not waiting:
            return
        node = waiting.popleft()
        yield node
        for inner in following(node):
            if inner not in seen:
                seen.add(inner)
                waiting.append(inner)


def maker(node: Any, moves: frozenset[str] = RESHAPES) -> Any:
    """The node that computed what some nodes, those called `moves`, have only moved since."""
    while node.name() in moves and (inner := following(node)):
        node = inner[0]
    return node


def saved(node: Any, name: str) -> Any:
    """What a node has saved for the backward pass; None where it has not, where it is used up, or where it is packed.

    Unpacking may compute it again, as in checkpointed regions, whose backward pass then fails.

    Example:
        >>> import torch
        >>> loss = torch.nn.functional.mse_loss(torch.zeros(2, requires_grad=True), torch.ones(2))
        >>> saved(loss.grad_fn, "target"), saved(loss.grad_fn, "weight")
        (tensor([1., 1.]), None)
    """
    packed = getattr(node, f"_raw_saved_{name}", None)
    if packed is None or getattr(packed, "unpack_hook", packed) is not None:
        return None
    try:
        return getattr(node, f"_saved_{name}")
    except RuntimeError:  # it is used up, or was changed since
        return None
