"""What becomes of gradients between one step of an optimiser and the next: cleared too late, or not at all."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import final

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from sonde.core.records import Float64
from sonde.probes.apart import apart
from sonde.probes.facts import Facts
from sonde.probes.hooks import Hooks, readable
from sonde.probes.parameters import of_groups
from sonde.probes.stacks import user_line

_MOST_TRACKED = 6
_SMALL = 65_536
_CONFIRMED = 2  # steps in a row


@dataclass
class _Cycle:
    """An optimiser, from one of its steps to the next."""

    name: str
    tracked: list[Tensor]
    applied: dict[int, Tensor] = field(default_factory=dict)
    """What the last step applied, by the place of its parameter."""
    arrivals: list[tuple[int, Tensor]] = field(default_factory=list)
    """The places of parameters that a gradient has reached, and of it: its largest magnitude; whether what was there
    is what the last step applied; whether nothing was there, or zeros."""
    at_step: list[Tensor] = field(default_factory=list)
    line: str | None = None
    in_a_row: Counter[str] = field(default_factory=Counter)


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

    def __init__(self, optimizers: Mapping[str, Optimizer], facts: Facts, hooks: Hooks) -> None:
        self._optimizers, self._facts, self._hooks = optimizers, facts, hooks
        self._cycles: dict[int, _Cycle] = {}

    def attach(self) -> None:
        """An iteration begins that is looked at."""
        for name, optimizer in self._optimizers.items():
            if id(optimizer) not in self._cycles:
                self._cycles[id(optimizer)] = _Cycle(name, _some(optimizer))
            cycle = self._cycles[id(optimizer)]
            for place, parameter in enumerate(cycle.tracked):
                if parameter.requires_grad:
                    self._hooks.on_gradient(parameter, partial(_arrive, cycle, place))

    def before_optimizer(self, optimizer: Optimizer) -> None:
        """An optimiser is about to make its step."""
        cycle = self._cycles.get(id(optimizer))
        if cycle is not None:
            cycle.line = cycle.line or user_line()
            cycle.at_step = [_largest(_gradient(parameter), parameter) for parameter in cycle.tracked]

    def after_optimizer(self, optimizer: Optimizer) -> None:
        """It has made it: the cycle is over, and the next begins."""
        cycle = self._cycles.get(id(optimizer))
        if cycle is None:
            return
        if cycle.arrivals and cycle.at_step:
            tensors = [*(numbers for _, numbers in cycle.arrivals), *cycle.at_step]
            self._facts.judge(tensors, partial(self._judge, cycle, [place for place, _ in cycle.arrivals]))
        gradients = map(_gradient, cycle.tracked)
        cycle.applied = {place: g.detach().clone() for place, g in enumerate(gradients) if g is not None}
        cycle.arrivals, cycle.at_step = [], []

    def rest(self) -> None:
        """The next iteration is not looked at: what it applies is not known."""
        self._cycles.clear()

    def _judge(self, cycle: _Cycle, places: list[int], numbers: Float64) -> None:
        arrivals, at_step = numbers[: 3 * len(places)].reshape(-1, 3), numbers[3 * len(places) :]
        kept, lost = [], []
        for place in sorted(set(places)):
            sizes, is_kept, is_clear = arrivals[np.equal(places, place)].T
            if (np.isfinite(sizes) & (sizes > 0)).any():
                kept.append(is_kept[0] > 0 and not is_clear.any())
                lost.append(at_step[place] == 0)
        for check, found in (("missing-zero-grad", kept), ("zero-grad-misplaced", lost)):
            cycle.in_a_row[check] = cycle.in_a_row[check] + 1 if found and all(found) else 0
            num = cycle.in_a_row[check]
            if num >= _CONFIRMED:
                self._facts.say_once(check, [cycle.name], about=cycle.name, value=num, line=cycle.line)


def _arrive(cycle: _Cycle, place: int, gradient: Tensor) -> None:
    if not readable(gradient):
        return
    parameter, before = cycle.tracked[place], cycle.applied.get(place)
    there = _gradient(parameter)
    size = _largest(gradient, parameter)
    with apart(gradient.device):
        is_kept, is_clear = torch.zeros_like(size), torch.full_like(size, parameter.grad is None)
        if there is not None:
            is_clear = _largest(there, parameter) == 0
            if before is not None:
                is_kept = (there == before).all() & ~is_clear
        cycle.arrivals.append((place, torch.stack([size, is_kept.double(), is_clear.double()])))


def _gradient(parameter: Tensor) -> Tensor | None:
    gradient = parameter.grad
    return gradient if gradient is not None and readable(gradient) else None


def _largest(gradient: Tensor | None, parameter: Tensor) -> Tensor:
    """The largest magnitude of a gradient, 0 of none."""
    with apart(parameter.device):
        if gradient is None:
            return torch.zeros((), dtype=torch.float64, device=parameter.device)
        return gradient.detach().abs().amax().double()


def _some(optimizer: Optimizer) -> list[Tensor]:
    """A few small parameters, spread over all of them, on one device."""
    all_of_them = [p for p in of_groups(optimizer) if p.requires_grad and readable(p)]
    fit = [p for p in all_of_them if 2 <= p.numel() <= _SMALL]
    fit = fit or sorted(all_of_them, key=Tensor.numel)[:_MOST_TRACKED]
    fit = [p for p in fit if p.device == fit[0].device]
    places = np.unique(np.linspace(0, len(fit) - 1, _MOST_TRACKED).astype(int)) if fit else ()
    return [fit[int(place)] for place in places]
