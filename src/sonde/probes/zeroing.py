"""What becomes of gradients between one step of an optimiser and the next: cleared too late, or not at all."""

from dataclasses import dataclass, field
from functools import partial
from typing import final

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from sonde.core.records import Float64
from sonde.probes.apart import apart
from sonde.probes.facts import Say, settle
from sonde.probes.hooks import Hooks, readable
from sonde.probes.probe import Reading
from sonde.probes.stacks import user_line

_MOST_TRACKED = 6
_SMALL = 65_536
_CONFIRMED = 2  # steps in a row


@dataclass
class _Arrival:
    """A gradient reached a parameter: what lay there before."""

    place: int
    was_none: bool
    numbers: Tensor
    """Largest magnitude of what arrives; whether what was there is what the last step applied; whether it is zero."""


@dataclass
class _Cycle:
    """An optimiser, from one of its steps to the next."""

    tracked: list[Tensor]
    applied: list[Tensor | None] = field(default_factory=list)
    arrivals: list[_Arrival] = field(default_factory=list)
    at_step: list[Tensor | None] = field(default_factory=list)
    line: str | None = None
    num_kept: int = 0
    num_lost: int = 0


@final
class Zeroing:
    """Follows the gradients of a few small parameters of each optimiser, by hooks on the parameters themselves.

    A hook on a leaf is called before what arrives is added to `.grad`, so it sees what the backward pass begins with.

    - `missing-zero-grad`: the first arrival after a step meets exactly the (non-zero) gradient which that step applied,
      no later one meets an empty or zero gradient, two steps in a row. Accumulation clears after its step, and a
      discriminator that is cleared before its own backward meets zero there: neither counts.
    - `zero-grad-misplaced`: gradients other than zero arrived, and when the optimiser steps they are None or zero, two
      steps in a row.
    """

    def __init__(self, optimizers: dict[str, Optimizer], say: Say, hooks: Hooks) -> None:
        self._say, self._hooks = say, hooks
        self._optimizers = optimizers
        self._cycles: dict[int, _Cycle] = {}
        self._readings: list[Reading] = []
        self._said: set[tuple[str, str]] = set()

    def attach(self) -> None:
        """An iteration begins that is looked at."""
        for optimizer in self._optimizers.values():
            cycle = self._cycles.get(id(optimizer))
            if cycle is None:
                cycle = self._cycles[id(optimizer)] = _Cycle(_some(optimizer))
            for place, parameter in enumerate(cycle.tracked):
                if parameter.requires_grad:
                    self._hooks.on_gradient(parameter, partial(self._arrive, cycle, place))

    def _arrive(self, cycle: _Cycle, place: int, gradient: Tensor) -> None:
        if not readable(gradient):
            return
        with apart(gradient.device):
            size = gradient.detach().abs().amax().double()
            old = cycle.tracked[place].grad
            before = cycle.applied[place] if place < len(cycle.applied) else None
            nothing = torch.zeros_like(size)
            if old is None or not readable(old):
                numbers = torch.stack([size, nothing, nothing])
            else:
                zero = old.detach().abs().amax() == 0
                kept = nothing if before is None else ((old == before).all() & ~zero).double()
                numbers = torch.stack([size, kept, zero.double()])
        cycle.arrivals.append(_Arrival(place, old is None, numbers))

    def before_optimizer(self, optimizer: Optimizer) -> None:
        """An optimiser is about to make its step."""
        cycle = self._cycles.get(id(optimizer))
        if cycle is None:
            return
        cycle.line = cycle.line or user_line()
        cycle.at_step = []
        for parameter in cycle.tracked:
            gradient = parameter.grad
            if gradient is None or not readable(gradient):
                cycle.at_step.append(None)
            else:
                with apart(gradient.device):
                    cycle.at_step.append(gradient.detach().abs().amax().double())

    def after_optimizer(self, name: str, optimizer: Optimizer) -> None:
        """It has made it: the cycle is over, and the next begins."""
        cycle = self._cycles.get(id(optimizer))
        if cycle is None:
            return
        if cycle.arrivals and cycle.at_step:
            arrivals, at_step = cycle.arrivals, cycle.at_step
            there = [i for i, size in enumerate(at_step) if size is not None]
            tensors = [arrival.numbers for arrival in arrivals] + [size for size in at_step if size is not None]
            self._readings += settle(tensors, partial(self._judge, name, cycle, arrivals, there))
        cycle.arrivals, cycle.at_step = [], []
        cycle.applied = []
        for parameter in cycle.tracked:
            gradient = parameter.grad
            usable = gradient is not None and readable(gradient)
            cycle.applied.append(gradient.detach().clone() if usable and gradient is not None else None)

    def collect(self) -> list[Reading]:
        """What is still on its way."""
        readings, self._readings = self._readings, []
        return readings

    def rest(self) -> None:
        """The next iteration is not looked at: what it applies is not known."""
        self._cycles.clear()

    def _judge(self, name: str, cycle: _Cycle, arrivals: list[_Arrival], there: list[int], numbers: Float64) -> None:
        rows = numbers[: 3 * len(arrivals)].reshape(-1, 3)
        sizes = dict(zip(there, numbers[3 * len(arrivals) :], strict=True))
        kept, lost = [], []
        for place in sorted({arrival.place for arrival in arrivals}):
            mine = [(a, row) for a, row in zip(arrivals, rows, strict=True) if a.place == place]
            if not any(np.isfinite(row[0]) and row[0] > 0 for _, row in mine):
                continue
            cleared = any(arrival.was_none or row[2] > 0 for arrival, row in mine)
            kept.append(mine[0][1][1] > 0 and not cleared)
            lost.append(sizes.get(place, 0.0) == 0)
        cycle.num_kept = cycle.num_kept + 1 if kept and all(kept) else 0
        cycle.num_lost = cycle.num_lost + 1 if lost and all(lost) else 0
        for check, num in (("missing-zero-grad", cycle.num_kept), ("zero-grad-misplaced", cycle.num_lost)):
            if num >= _CONFIRMED and (check, name) not in self._said:
                self._said.add((check, name))
                self._say(check, {"where": [name] if name else [], "value": num, "line": cycle.line})


def _some(optimizer: Optimizer) -> list[Tensor]:
    """A few small parameters, spread over all of them, on one device."""
    all_of_them = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad and readable(p)]
    fit = [p for p in all_of_them if 2 <= p.numel() <= _SMALL]
    fit = fit or sorted(all_of_them, key=Tensor.numel)[:_MOST_TRACKED]
    fit = [p for p in fit if p.device == fit[0].device]
    places = np.unique(np.linspace(0, len(fit) - 1, _MOST_TRACKED).astype(int)) if fit else ()
    return [fit[int(place)] for place in places]
