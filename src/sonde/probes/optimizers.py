"""An optimiser that is watched: its parameters, and what is prepared to measure them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from sonde.core.records import Float64
from sonde.kernels import TensorStats
from sonde.kernels.dispatch import steps_of
from sonde.probes.cadences import Cadences
from sonde.probes.norms import tensor_norms
from sonde.probes.optimizer_numbers import OptimizerNumbers
from sonde.probes.parameters import LAZY, NO_FLOATS, Watched, left_out, num_parameters, of_optimizer
from sonde.probes.shards import local_parts
from sonde.probes.sharing import Sharing
from sonde.streams.logs import logger

if TYPE_CHECKING:
    from sonde.kernels.triton_steps import TritonSteps

_log = logger("sonde.monitor")

# Which parameters have a gradient may change at every step (experts); what was prepared for them must not pile up.
_MOST_STATS = 256
_MOST_STEPS = 8  # a training that keeps changing its stream is measured in another way
_WHOLE = frozenset({Tensor, nn.Parameter})  # never a piece of something
ALL_GRADIENTS = "gradients", None
"""The key of what measures the gradients of all parameters."""


class Slot(NamedTuple):
    """The parameters that have their turn together."""

    names: tuple[str, ...]
    parameters: list[Tensor]
    number: int | None
    """None where there is only one slot."""


@dataclass(slots=True, eq=False)
class WatchedOptimizer:
    """An optimiser, its parameters as they were when last looked at, and what was measured in this iteration.

    Args:
        name: Empty where there is only one optimiser.
        optimizer: The user's.
        cadences: Say into how many slots parameters are spread.
        on_gpu: Whether they are on a CUDA device.
        names_of: The name of every parameter of the models, by its id.
        not_measured: Says, once, what cannot be measured, and why.
    """

    name: str
    optimizer: Optimizer
    cadences: Cadences
    on_gpu: bool
    names_of: Callable[[], Mapping[int, str]]
    not_measured: Callable[[str, str], None]
    watched: list[Watched] = field(default_factory=list)
    names: tuple[str, ...] = ()
    parameters: list[Tensor] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)
    update_slots: list[Slot] = field(default_factory=list)
    """The same for updates."""
    ids: set[int] = field(default_factory=set)
    kind: tuple[torch.dtype, torch.device] | None = None
    """Of its first parameter."""
    numbers: OptimizerNumbers = field(default_factory=OptimizerNumbers)
    sharing: Sharing | None = None
    """Where its parameters are split over ranks."""
    is_blind: bool = False
    """Whether they are split, and other ranks do not watch: a piece's statistics are not the tensor's."""
    _num: int = -1
    """Parameters when it was last looked at, those that cannot be watched among them."""
    _lazy: list[Tensor] = field(default_factory=list)
    """Those that had no values then."""
    _left_out: str = ""
    """What was said about those that cannot be watched."""
    _stats: dict[Any, TensorStats] = field(default_factory=dict)
    _steps: "TritonSteps | None" = None
    _has_steps: bool = True
    _steps_made: int = 0

    @property
    def at(self) -> str:
        """What stands behind the tags of its numbers."""
        return f"@{self.name}" if self.name else ""

    def refresh(self) -> bool:
        """Notice parameters that were added since, or changed their type or place; whether there were any."""
        num = num_parameters(self.optimizer)
        first = self.parameters[0] if self.parameters else None
        is_as_before = num == self._num and (first is None or (first.dtype, first.device) == self.kind)
        if is_as_before and all(map(is_lazy, self._lazy)):
            if self._lazy:  # not by the first call of the model either
                self._say_left_out({LAZY: len(self._lazy)})
            return False
        names_by_id = self.names_of()
        self.numbers.spread(self.names)  # what was read is of these
        self._num, self.watched = num, of_optimizer(self.optimizer, names_by_id, self.name)
        self.names, self.parameters = tuple(w.name for w in self.watched), [w.parameter for w in self.watched]
        self.slots = self._spread(self.cadences.rotating.interval_steps)
        self.update_slots = self._spread(self.cadences.num_update_slots(on_gpu=self.on_gpu))
        self.ids = set(map(id, self.parameters))
        self.kind = (self.parameters[0].dtype, self.parameters[0].device) if self.watched else None
        self._stats.clear()
        self._steps, self._has_steps, self._steps_made = None, True, 0
        if self.sharing is not None:
            self.sharing.replace(self.watched)
        self._lazy = []
        if len(self.watched) < num:
            self._lazy = [p for group in self.optimizer.param_groups for p in group["params"] if is_lazy(p)]
            missing = left_out(self.optimizer, names_by_id, self.name)
            self._say_left_out({reason: count for reason, count in missing.items() if reason != LAZY})
        return True

    def _spread(self, num: int) -> list[Slot]:
        every = (slice(slot, None, num) for slot in range(num))
        return [
            Slot(self.names[some], self.parameters[some], slot if num > 1 else None) for slot, some in enumerate(every)
        ]

    def _say_left_out(self, missing: Mapping[str, int]) -> None:
        said = "; ".join(f"{n} {'parameter is' if n == 1 else 'parameters are'} {why}" for why, n in missing.items())
        if said and said != self._left_out:
            self._left_out = said
            self.not_measured(f"weight/*{self.at}", said)
            if missing.keys() != {NO_FLOATS}:  # tables of integers and sparse weights are meant to be there
                _log.warning("left unwatched%s: %s", f" of {self.name}" if self.name else "", said)

    def stats(self, key: Any, tensors: Sequence[Tensor]) -> TensorStats:
        """What measures tensors like these, prepared once for each key."""
        stats = self._stats.get(key)
        if stats is None:
            if len(self._stats) >= _MOST_STATS:
                self._stats.clear()
            stats = self._stats[key] = TensorStats(tensors)
        return stats

    def norms(self, key: Any, tensors: Sequence[Tensor]) -> Tensor:
        """The norms of tensors like those that were prepared under a key."""
        norms = None if self.on_gpu else self.stats(key, tensors)(tensors).norms
        return tensor_norms(tensors) if norms is None else norms

    def steps(self) -> "TritonSteps | None":
        """What measures with few launches what most steps ask for, on the current stream; None where that cannot be."""
        if not (self.on_gpu and self._has_steps) or self.sharing is not None:
            return None
        if self._steps is None or not self._steps.is_current:
            can_be = self._steps_made < _MOST_STEPS and set(map(type, self.parameters)) <= _WHOLE
            self._steps = steps_of(self.parameters, len(self.slots)) if can_be else None
            self._has_steps = self._steps is not None
            self._steps_made += 1
        return self._steps

    def read_plainly(self, gradients: Sequence[Tensor]) -> bool:
        """Read gradients as they were read before, by one call of C and nothing else; whether that could be done."""
        stats = self._stats.get(ALL_GRADIENTS)
        if stats is None or self.numbers.tensors or (found := stats.vector(gradients)) is None:
            return False
        self.numbers.plain = found
        return True

    def add(self, key: Any, tensor: Tensor) -> None:
        """Note what was measured; where parameters are split, first for the other ranks."""
        if self.sharing is None:
            self.numbers.spread(self.names)
            self.numbers.add(key, tensor)
        else:
            self.sharing.add(key, tensor)

    def take_plain(self) -> Float64 | None:
        """The gradients of the iteration that is over, where they are all that was measured; else `take` has it."""
        numbers = self.numbers
        if numbers.plain is None or numbers.clips or numbers.is_incomplete:
            return None
        found, numbers.plain = numbers.plain, None
        return found

    def take(self) -> OptimizerNumbers:
        """What was measured in the iteration that is over."""
        self.numbers.spread(self.names)
        numbers, self.numbers = self.numbers, OptimizerNumbers()
        return numbers


def pieces(tensors: list[Tensor]) -> list[Tensor]:
    """What this process holds of them."""
    return tensors if set(map(type, tensors)) <= _WHOLE else local_parts(tensors)
