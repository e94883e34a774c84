"""Floating-point operations of a step, from the sizes of what modules are given and give."""

from collections.abc import Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from sonde.probes.hooks import Hooks, first_tensor, is_compiled
from sonde.probes.probe import Reading, known, table_row
from sonde.probes.stopwatch import Stopwatch

_YIELDS = {"flops/step": "floating-point operations of a step in products with weights, forward and backward"}
_MATRICES = (nn.Linear, nn.Bilinear, nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention, nn.modules.conv._ConvNd)


@final
class Flops:
    """Counts the operations of modules that multiply by weights: a probe (see `Probe`) with one slot.

    A weight of n numbers that is used at m positions (of a batch, a sequence, an image) takes 2nm operations forward,
    as many backward for the gradient of the module's input where that is wanted, and as many for its own where it is
    trained: 6nm as a rule. Counted are linear, bilinear, convolutional and recurrent layers, the projections of
    `nn.MultiheadAttention`, and modules of others with a matrix that leads from the last dimension of their input to
    that of their output; with gradients only. Not counted: products of activations with each other (attention's own),
    element-wise work, what is computed twice by checkpointing.

    Args:
        models: By name.

    Example:
        >>> net = nn.Linear(3, 5)
        >>> probe = Flops({"": net})
        >>> probe.arm([0])
        >>> net(torch.ones(4, 3)).sum().backward()
        >>> (reading,) = probe.collect()
        >>> (row,) = reading.report(torch.empty(0).numpy())
        >>> row.values.tolist()  # 2 * 15 * 4, twice: the input has no gradient
        [240.0]
    """

    yields = _YIELDS

    def __init__(self, models: Mapping[str, nn.Module], *, clock: Stopwatch | None = None) -> None:
        self._all = [module for model in models.values() for module in model.modules()]
        self._modules = list(dict.fromkeys(filter(_may_multiply, self._all)))
        self._hooks = Hooks(clock)
        self._count = 0.0
        self._reason = ""

    @property
    def num_slots(self) -> int:
        """All is measured together."""
        return 1 if self._modules else 0

    def arm(self, slots: Sequence[int]) -> None:
        """Listen to the modules."""
        if not slots:
            return
        if any(map(is_compiled, self._all)):
            self._reason = "a part of the model is compiled, where no calls are seen"
            return
        for module in self._modules:
            self._hooks.after(module, self._take)

    def collect(self) -> Sequence[Reading]:
        """The operations of the iteration."""
        self._hooks.release()
        count, self._count = self._count, 0.0
        return [known(table_row("flops", {"flops/step": count}))] if count else []

    def not_measured(self) -> Mapping[str, str]:
        """Where calls are not seen."""
        return {"flops/step": self._reason} if self._reason else {}

    def close(self) -> None:
        """Let go of the modules."""
        self._modules, self._all = [], []
        self._hooks.release()

    def _take(self, module: nn.Module, args: Any, output: Any) -> None:
        x, y = first_tensor(args), first_tensor(output)
        if x is None or y is None or not (torch.is_grad_enabled() and x.dim() and y.dim()):
            return
        positions = _positions(module, x, y)
        for weight in _weights(module, x, y):
            self._count += 2.0 * weight.numel() * positions * (1 + x.requires_grad + weight.requires_grad)


def _may_multiply(module: nn.Module) -> bool:
    if isinstance(module, _MATRICES):
        return True
    is_foreign_leaf = not type(module).__module__.startswith("torch.") and next(module.children(), None) is None
    return is_foreign_leaf and any(p.dim() == 2 for p in module.parameters(recurse=False))


def _positions(module: nn.Module, x: Tensor, y: Tensor) -> float:
    if isinstance(module, nn.modules.conv._ConvTransposeNd):
        return x.numel() / module.in_channels
    if isinstance(module, nn.modules.conv._ConvNd):
        return y.numel() / module.out_channels
    return y.numel() / y.shape[-1] if y.shape[-1] else 0.0


def _weights(module: nn.Module, x: Tensor, y: Tensor) -> Sequence[Tensor]:
    own = [p for p in module.parameters(recurse=isinstance(module, nn.MultiheadAttention)) if p.dim() > 1]
    if isinstance(module, _MATRICES):
        return own
    ends = {x.shape[-1], y.shape[-1]}
    return [weight for weight in own if set(weight.shape) == ends]
