"""The learning rates of all optimisers, at each of their steps."""

from collections.abc import Mapping, Sequence

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
        self._rates: dict[str, float | Tensor] = {}
        """By tag; tensors where they are on a device."""

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
                self._rates |= dict.fromkeys(tags_of, rate.detach().clone())  # schedulers change it in place
            elif rate is not None:
                self._rates |= dict.fromkeys(tags_of, float(rate))

    def collect(self) -> Sequence[Reading]:
        """The rates of the steps of this iteration."""
        rates, self._rates = self._rates, {}
        late = {tag: rate for tag, rate in rates.items() if isinstance(rate, Tensor)}

        def report(numbers: Float64) -> Sequence[Row]:
            arrived = dict(zip(late, numbers.tolist(), strict=True))
            return [step_row({tag: arrived.get(tag, rate) for tag, rate in rates.items()})]

        return [Reading(list(late.values()), report, num_essential=len(late))] if rates else []

    def not_measured(self) -> Mapping[str, str]:
        """Nothing."""
        return {}

    def close(self) -> None:
        """Let go of what was noted."""
        self._rates = {}


def _tags(name: str, num_groups: int) -> list[tuple[str, ...]]:
    tags: list[tuple[str, ...]] = [(f"lr@{name}.{i}" if name else f"lr@{i}",) for i in range(num_groups)]
    first = f"lr@{name}" if name else "lr"
    return [(first, *tags[0]), *tags[1:]] if num_groups > 1 else [(first,)]
