"""The learning rates of all optimisers, at each of their steps."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor
from torch.optim import Optimizer

from sonde.core.records import Float64
from sonde.probes.events import Events
from sonde.probes.probe import Reading, Row, known, step_row


class LearningRates:
    """Notes the rate of every group when its optimiser is entered: a scheduler may act before the iteration is over.

    The first group's rate is the run's (`lr`), so that a group that is added later does not cut the series.

    Args:
        optimizers: By name, empty where there is only one.
    """

    def __init__(self, optimizers: Mapping[str, Optimizer]) -> None:
        self._names = {id(optimizer): name for name, optimizer in optimizers.items()}
        self._tags: dict[int, list[tuple[str, ...]]] = {}
        self._rates: dict[str, float | Tensor] = {}
        """By tag; tensors where they are on a device."""
        self._has_late = False
        """Whether any is."""
        self._last: dict[str, float | Tensor] = {}
        self._readings: list[Reading] = []
        """What was told of the last ones, none of which was on a device."""

    def listen(self, events: Events) -> None:
        """Begin to listen."""
        events.optimizer_enters.append(self.note)
        events.rates.append(self.note)

    def note(self, optimizer: Optimizer) -> None:
        """An optimiser is about to make its step."""
        groups = optimizer.param_groups
        tags = self._tags.get(id(optimizer), [])
        if len(tags) != len(groups):
            tags = self._tags[id(optimizer)] = _tags(self._names[id(optimizer)], len(groups))
        for group, tags_of in zip(groups, tags, strict=True):
            rate: Any = group.get("lr")
            is_late = isinstance(rate, Tensor) and rate.device.type != "cpu"
            self._has_late |= is_late
            for tag in tags_of if rate is not None else ():
                self._rates[tag] = rate.detach().clone() if is_late else float(rate)  # schedulers change it in place

    def collect(self) -> Sequence[Reading]:
        """The rates of the steps of this iteration."""
        rates, self._rates = self._rates, {}
        if self._has_late:
            self._has_late = False
            late = {tag: rate for tag, rate in rates.items() if isinstance(rate, Tensor)}
            return [Reading(list(late.values()), partial(_report, rates, list(late)), num_essential=len(late))]
        if rates != self._last:
            self._last, self._readings = rates, [known(*_report(rates, (), np.empty(0)))] if rates else []
        return self._readings

    def not_measured(self) -> Mapping[str, str]:
        """Nothing."""
        return {}

    def close(self) -> None:
        """Let go of what was noted."""
        self._rates = {}


def _report(rates: Mapping[str, float | Tensor], late: Sequence[str], numbers: Float64) -> Sequence[Row]:
    arrived = dict(zip(late, numbers.tolist(), strict=True))
    return [step_row({tag: arrived[tag] if isinstance(rate, Tensor) else rate for tag, rate in rates.items()})]


def _tags(name: str, num_groups: int) -> list[tuple[str, ...]]:
    tags: list[tuple[str, ...]] = [(f"lr@{name}.{i}" if name else f"lr@{i}",) for i in range(num_groups)]
    first = f"lr@{name}" if name else "lr"
    return [(first, *tags[0]), *tags[1:]] if num_groups > 1 else [(first,)]
