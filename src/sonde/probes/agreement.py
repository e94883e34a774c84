"""At which steps ranks exchange statistics: all at the same ones, or they would wait for each other for ever."""

from collections import deque
from typing import NamedTuple, final

import torch
from torch import Tensor

from sonde.core.cadences import Every, Rotation, stretched

# A word is acted upon this many steps after it was said. Were it not there by then, the training thread would wait
# for it; but it is on its way through a queue in which eight more steps wait behind it, so that the device would not
# run dry. In a training whose host is less than eight steps ahead it is always there.
_LAG_STEPS_ON_GPU = 8


class _Word(NamedTuple):
    step: int
    value: Tensor
    arrived: torch.cuda.Event | None


@final
class Agreement:
    """A stretch of cadences that is the same on all ranks at every step.

    Each rank has its own *wish*: how far it would stretch cadences to keep its own budget. The wishes travel with the
    exchanges themselves (`Shards.gather(word=...)`), and the largest counts: the slowest rank is the one that all wait
    for. What was said in the exchange of optimiser step k holds from step k + lag + 1 on, on every rank, whenever its
    number reaches the host. The lag is 0 on a CPU, 8 on a GPU.

    Steps are counted in calls of the optimiser, by `begin`: nothing that a user may do on one rank only (`watch.step`,
    `watch.evaluate`, loading Sonde's state, closing) moves them. A new process counts from 0, with a stretch of 1.

    One rank that wishes for an infinite stretch ends the exchanges on all of them, at the same step.

    Args:
        device: Where words come from.

    Attributes:
        wish: What this rank says in its next exchange; at least 1, infinite to end it.
        stretch: What all have agreed upon for the current step.
        step: Optimiser steps that have begun, less 1.

    Example:
        >>> agreement = Agreement(torch.device("cpu"))
        >>> agreement.begin()
        >>> agreement.hear(torch.tensor(4.0))  # as it came out of the exchange
        >>> agreement.stretch
        1.0
        >>> agreement.begin()
        >>> agreement.step, agreement.stretch, agreement.due(Every(1))  # the next turn is in step 4
        (1, 4.0, False)
    """

    def __init__(self, device: torch.device) -> None:
        self.wish = 1.0
        self.stretch = 1.0
        self.step = -1
        on_gpu = device.type == "cuda"
        self._lag_steps = _LAG_STEPS_ON_GPU if on_gpu else 0
        self._heard: deque[_Word] = deque()
        # A word a step that may still be waited for.
        self._here = torch.zeros(self._lag_steps + 1, dtype=torch.float64, pin_memory=on_gpu)

    @property
    def over(self) -> bool:
        """Whether nothing is exchanged any more."""
        return self.stretch == float("inf")

    def begin(self) -> None:
        """An optimiser begins a step; on every rank."""
        self.step += 1
        while self._heard and self._heard[0].step + self._lag_steps < self.step:
            word = self._heard.popleft()
            if word.arrived is not None:
                word.arrived.synchronize()
            self.stretch = max(self.stretch if self.over else 1.0, float(word.value))

    def due(self, cadence: Every) -> bool:
        """Whether a family has its turn in this step, on every rank."""
        return not self.over and stretched(cadence, self.stretch).due(self.step)

    def slots(self, cadence: Every, num_slots: int) -> range:
        """Which slots of a family that rotates have their turn in this step, on every rank."""
        return range(0) if self.over else Rotation(stretched(cadence, self.stretch), num_slots).due(self.step)

    def hear(self, word: Tensor) -> None:
        """What came out of this step's exchange; once a step."""
        here, arrived = self._here[self.step % len(self._here)], None
        here.copy_(word, non_blocking=True)
        if word.device.type == "cuda":
            arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            arrived.record()
        self._heard.append(_Word(self.step, here, arrived))
