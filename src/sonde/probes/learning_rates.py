"""The learning rates of all optimisers, at each of their steps."""

from collections.abc import Mapping, Sequence
from functools import partial

from torch import Tensor
from torch.optim import Optimizer

from sonde.core.records import Float64
from sonde.probes.events import Events
from sonde.probes.probe import Reading, Row, step_row


class LearningRates:
    """Notes the rate of every group when its optimiser is entered: a scheduler may act before the iteration is over.

    The first group's rate is the run's (`lr`), so that a group that is added later does not cut the series.

    Args:
        optimizers: By name, empty where there is only one.
    """

    def __init__(self, optimizers: Mapping[str, Optimizer]) -> None:
        self._names = {id(optimizer): name for name, optimizer in optimizers.items()}
        self._tags: dict[int, list[tuple[str, ...]]] = {}
        self._rates: dict[str, float] = {}
        self._late: list[tuple[tuple[str, ...], Tensor]] = []
        """Rates that are on a device."""

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
            rate = group.get("lr")
            if isinstance(rate, Tensor) and rate.device.type != "cpu":
                self._late.append((tags_of, rate.detach().clone()))  # schedulers change it in place
            elif rate is not None:
                self._rates |= dict.fromkeys(tags_of, float(rate))

    def collect(self) -> Sequence[Reading]:
        """The rates of the steps of this iteration."""
        rates, late, self._rates, self._late = self._rates, self._late, {}, []
        if not (rates or late):
            return []
        tensors = [tensor for _, tensor in late]
        report = partial(_report, rates, [tags for tags, _ in late])
        return [Reading(tensors, report, num_essential=len(tensors))]

    def not_measured(self) -> Mapping[str, str]:
        """Nothing."""
        return {}

    def close(self) -> None:
        """Let go of what was noted."""
        self._rates, self._late = {}, []


def _tags(name: str, num_groups: int) -> list[tuple[str, ...]]:
    tags: list[tuple[str, ...]] = [(f"lr@{name}.{i}" if name else f"lr@{i}",) for i in range(num_groups)]
    first = f"lr@{name}" if name else "lr"
    return [(first, *tags[0]), *tags[1:]] if num_groups > 1 else [(first,)]


def _report(rates: Mapping[str, float], late: Sequence[tuple[str, ...]], numbers: Float64) -> Sequence[Row]:
    late_rates = {tag: float(value) for tags, value in zip(late, numbers, strict=True) for tag in tags}
    return [step_row({**rates, **late_rates})]
