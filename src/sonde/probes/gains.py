"""Gains: how much larger or smaller each block of a model makes the gradient on its way back."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from sonde.core.frames import MISSING, Columns, Detail, Float32, is_missing
from sonde.core.records import Float64
from sonde.probes.blocks import blocks_of
from sonde.probes.hooks import Hooks, first_tensor, is_compiled, lineages, readable
from sonde.probes.norms import tensor_norms
from sonde.probes.probe import Reading, Row
from sonde.probes.stopwatch import Stopwatch

# Armed iterations without a gain before it is said: an evaluation or a skipped block may explain one or two.
_PATIENCE = 3


@final
class Gains:
    """The gain of every block, and what all of them do to a gradient together: a probe (see `Probe`) of one slot.

    All blocks have their turn in the same iteration: gains of different steps have no product.

    With x a block's input and y its output (the first tensors of floating-point numbers of each), L what `backward` was
    called on, and ‖·‖ the L2 norm,

        gain = ‖∂L/∂x‖ / ‖∂L/∂y‖

    Both are whole gradients, over all ways in which the tensor is used, also past the block. So in a chain of blocks
    the gains multiply to the ratio of the gradients at its ends, and their mean is the geometric one. A loss scale
    cancels.

    Measured is the first forward of a block in an armed iteration that runs with gradients, and the first backward
    through it: with activation checkpointing of either kind, the one that has a gradient. Only hooks of tensors are
    used; they see the values that a tensor had when the block got or gave it, whatever changes it in place afterwards.
    Of a view that is changed in place this is not so, and its gain is not measured.

    A gain is 0 where the input's gradient is, NaN where a norm is not finite, and missing where the gradient of the
    output is 0, where the input requires no gradient (the first block after frozen embeddings) and where no backward
    came. The means are over the blocks that have a gain in the iteration.

    Args:
        models: By name (see `blocks_of`).
    """

    yields: Mapping[str, str] = {
        "gain/block@": "norm of the gradient at a block's input over that at its output",
        "gain/mean": "geometric mean of the blocks' gains: what one block does to the gradient",
        "gain/mean_arithmetic": "arithmetic mean of the blocks' gains",
        "gain/amplification": "product of the blocks' gains: what all of them do to the gradient, end to end",
    }

    def __init__(self, models: Mapping[str, nn.Module], *, clock: Stopwatch | None = None) -> None:
        self._blocks = blocks_of(models)
        above = lineages(models.values())
        self._above = [above[id(block.module)] for block in self._blocks]
        self._tags = [f"gain/block@{block.name}" for block in self._blocks]
        self._columns = Columns("gains", self._tags, Detail.LAYER)
        self._hooks = Hooks(clock)
        self._passes: dict[int, _Pass] = {}
        self._misses = [0] * len(self._blocks)
        self._reasons: dict[str, str] = {}
        for place in range(len(self._blocks)):
            self._is_compiled(place)

    @property
    def num_slots(self) -> int:
        return 1 if self._blocks else 0

    def arm(self, slots: Sequence[int]) -> None:
        for place, block in enumerate(self._blocks):
            if not self._is_compiled(place):
                passing = self._passes[place] = _Pass(self._hooks)
                self._hooks.before(block.module, passing.begin)
                self._hooks.after(block.module, passing.end)

    def collect(self) -> Sequence[Reading]:
        passes, self._passes = self._passes, {}
        self._hooks.release()
        found: list[int] = []
        norms: list[Tensor] = []
        for place, passing in passes.items():
            if passing.norms:
                found.append(place)
                norms += passing.norms
                self._misses[place] = 0
                self._reasons.pop(self._tags[place], None)
            else:
                self._misses[place] += 1
                if self._misses[place] >= _PATIENCE:
                    self._reasons[self._tags[place]] = f"{passing.reason}, {_PATIENCE} times in a row"
        return [Reading(norms, functools.partial(self._report, found))] if found else []

    def not_measured(self) -> Mapping[str, str]:
        return dict(self._reasons)

    def close(self) -> None:
        self._blocks, self._above, self._passes = [], [], {}
        self._hooks.release()

    def _is_compiled(self, place: int) -> bool:
        """Whether no hook of a block is called; it may be compiled at any time."""
        compiled = any(map(is_compiled, self._above[place]))
        if compiled:
            self._reasons[self._tags[place]] = "it lies in a compiled region, where no hook is called"
        return compiled

    def _report(self, places: Sequence[int], norms: Float64) -> Iterable[Row]:
        gains = np.full(self._columns.width, MISSING, np.float32)
        gains[places] = ratio(norms[::2], norms[1::2])
        yield Row(self._columns, gains.astype(np.float64))
        measured = gains[~is_missing(gains)].astype(np.float64)
        if len(measured):
            yield Row(_MEANS, means(measured))


_MEANS = Columns("gain-means", ("gain/mean", "gain/mean_arithmetic", "gain/amplification"), Detail.ESSENTIAL)


def ratio(inputs: Float64, outputs: Float64) -> Float32:
    """The gains from the norms of gradients at inputs and outputs.

    Example:
        >>> ratio(np.array([3.0, 0.0, 1.0, np.inf]), np.array([2.0, 5.0, 0.0, 1.0])).tolist()
        [1.5, 0.0, nan, nan]
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        gains = np.where(np.isfinite(inputs) & np.isfinite(outputs), inputs / outputs, np.nan).astype(np.float32)
    return np.where(outputs == 0, MISSING, gains)


def means(gains: Float64) -> Float64:
    """Geometric mean, arithmetic mean and product of gains.

    Example:
        >>> means(np.array([0.5, 8.0])).tolist()
        [2.0, 4.25, 4.0]
    """
    with np.errstate(divide="ignore", over="ignore"):
        logs = np.log2(gains)
        return np.array([np.exp2(np.mean(logs)), np.mean(gains), np.exp2(np.sum(logs))])


@final
class _Pass:
    """One forward and backward through a block."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self._began = self._ended = False
        self._norms: dict[str, Tensor] = {}
        self.reason = "it was not called with gradients"

    @property
    def norms(self) -> Sequence[Tensor]:
        """Of the gradients at the input and at the output; empty unless both came."""
        return [self._norms["input"], self._norms["output"]] if len(self._norms) == 2 else []

    def begin(self, _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self._began and torch.is_grad_enabled():
            self._began = True
            # Before the forward: it may change its input in place.
            x = first_tensor((args, kwargs), lambda tensor: tensor.requires_grad and tensor.is_floating_point())
            self._ended = x is None
            self._watch(x, "input")

    def end(self, _module: nn.Module, _args: Any, output: Any) -> None:
        if not self._ended and torch.is_grad_enabled():
            self._ended = True
            self._watch(first_tensor(output), "output")

    def _watch(self, tensor: Tensor | None, which: str) -> None:
        if tensor is None or not tensor.requires_grad:
            self.reason = f"its {which} requires no gradient"
            return
        if not readable(tensor):
            self.reason = f"a {type(tensor).__name__} of {tensor.dtype} cannot be read here"
            return
        self.reason = "no gradient came back through it"
        # A view that is changed in place gets a new place in the graph, and the hook stays at the old one, which then
        # sees a part of the gradient or none. A detached tensor shares the counter of changes and holds no graph.
        version = tensor._version
        view = tensor.detach() if tensor._is_view() else None

        def take(gradient: Tensor) -> None:
            if view is not None and view._version != version:
                self.reason = f"its {which} is a view that was changed in place"
            elif which not in self._norms and readable(gradient):
                self._norms[which] = _norm(gradient)

        self._hooks.on_gradient(tensor, take)


@torch.no_grad()
def _norm(tensor: Tensor) -> Tensor:
    if tensor.is_cuda:  # there float64 costs nothing beside reading, and the squares of float32 overflow at 1e19
        norm: Tensor = torch.linalg.vector_norm(tensor, dtype=torch.float64)
        return norm
    return tensor_norms([tensor])[0]
