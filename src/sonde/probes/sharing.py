"""An optimiser whose parameters are split over ranks: what is due, and what is found, is shared between them."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim import Optimizer

from sonde.kernels.histograms import NUM_BINS
from sonde.kernels.merging import all_counts, norm_rows
from sonde.probes.agreement import Agreement
from sonde.probes.cadences import Cadences
from sonde.probes.exchange import Exchange, Section
from sonde.probes.optimizer_numbers import NORMS, ROWS, Key, OptimizerNumbers, Part
from sonde.probes.parameters import Watched
from sonde.probes.shards import is_sharded, local_parts


class Sharing:
    """Stands where the schedule and the numbers of other optimisers stand.

    It says what is due by what all ranks have agreed upon, takes the statistics of this rank's pieces, and, when the
    step is over, notes those of the whole tensors. Sketches of pieces do not add up: cosines and the
    trajectory are not measured.

    Args:
        watched: The optimiser's parameters.
        cadences: The settings.
    """

    def __init__(self, watched: Sequence[Watched], cadences: Cadences) -> None:
        self.cadences = cadences
        self._num_slots = cadences.rotating.interval_steps
        on_gpu = any(w.parameter.device.type == "cuda" for w in watched)
        self._num_update_slots = cadences.num_update_slots(on_gpu=on_gpu)
        self._exchange = Exchange([w.parameter for w in watched], self._plan)
        self._watch(watched)

    @staticmethod
    def needed(watched: Sequence[Watched]) -> bool:
        """Whether any of the parameters is split."""
        return any(is_sharded(w.parameter) for w in watched)

    def replace(self, watched: Sequence[Watched]) -> None:
        """The optimiser has other parameters."""
        self._exchange.replace([w.parameter for w in watched])
        self._watch(watched)

    def _watch(self, watched: Sequence[Watched]) -> None:
        self._names = tuple(w.name for w in watched)
        self._places = {w.name: place for place, w in enumerate(watched)}
        self._numels = [
            part.numel() * (2 if part.is_complex() else 1) for part in local_parts([w.parameter for w in watched])
        ]

    def wish(self, stretch: float) -> None:
        """How far this rank would stretch the cadences."""
        self._exchange.agreement.wish = stretch

    # As a schedule.

    @property
    def iteration(self) -> int:
        """The optimiser's own steps."""
        return self._exchange.agreement.step

    is_quiet = False
    """The ranks wait for each other at every step anyway."""

    def due(self, family: str, ahead: int = 0) -> bool:
        """Whether a family has its turn in the step that has begun."""
        return family != "cosines" and ahead == 0 and self._exchange.agreement.due(getattr(self.cadences, family))

    def slots(self, family: str, num_slots: int) -> Sequence[int]:
        """Which slots have their turn."""
        # Histograms of weights would be a second message of thousands of numbers; those of gradients are one already.
        if family == "histograms":
            return range(0)
        return self._exchange.agreement.slots(getattr(self.cadences, family), num_slots)

    def _plan(self, agreement: Agreement) -> Sequence[Section]:
        everything = range(len(self._names))
        layers = agreement.due(self.cadences.layers)
        parts = [Part.GRADIENTS, Part.WEIGHTS] if layers else [Part.NORMS]
        sections = [Section((part, None), everything) for part in (*parts, Part.NORMS_APPLIED)]
        num = self._num_update_slots
        rotating = agreement.slots(self.cadences.rotating, num) if self.cadences.updates_rotate else range(0)
        for slot in range(num) if agreement.due(self.cadences.updates) else rotating:
            if members := everything[slot::num]:
                number = slot if num > 1 else None
                sections += [Section((part, number), members) for part in (Part.UPDATES, Part.BEFORE)]
        for slot in agreement.slots(self.cadences.rotating, self._num_slots):
            if members := everything[slot :: self._num_slots]:
                sections += [
                    Section((Part.HISTOGRAM, slot), members, NUM_BINS),
                    Section((Part.EXTREMES, slot), members),
                ]
        return sections

    # As the numbers of an optimiser.

    def begin(self) -> None:
        """A step begins, or soon will; once a step it does anything."""
        self._exchange.begin()

    def add(self, key: Key, tensor: Tensor) -> None:
        """Give what was found of this rank's pieces; what is not due on all ranks is dropped."""
        for section in self._exchange.sections:
            if section.key == (key.part, key.slot):
                places = [self._places[name] for name in key.names]
                self._exchange.offer(section, places, self._as_sent(key.part, places, tensor))

    def _as_sent(self, part: Part, places: Sequence[int], tensor: Tensor) -> Tensor:
        if part in NORMS:
            return norm_rows(tensor)
        if part in ROWS:
            return tensor
        return all_counts(tensor, [self._numels[place] for place in places])

    @torch.no_grad()
    def finish(self, numbers: OptimizerNumbers) -> None:
        """The step is over: exchange, and note down what is known of the whole tensors."""
        sections = self._exchange.sections
        found = self._exchange.finish()
        for section in sections:
            assert isinstance(section.key, tuple)
            part, slot = section.key
            numbers.add(Key(part, tuple(self._names[place] for place in section.members), slot), found[section.key])

    def leave(self, optimizer: Optimizer, depth: int) -> None:
        """Watch no more, without leaving the other ranks waiting."""
        self._exchange.leave(optimizer, depth=depth)
