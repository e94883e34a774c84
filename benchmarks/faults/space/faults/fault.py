"""What a fault is: a cause, the values in the recipe that it changes, and how strongly."""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.faults.space.recipe import Training

Changes = Mapping[str, Any]


def always(training: Training) -> bool:
    """Every training that has one model and one optimiser."""
    return training.task != "two-player"


def no_context(training: Training) -> Changes:
    """The ground needs no preparing."""
    return {}


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A mistake, orthogonal to what is trained.

    Args:
        name: Kebab-case; unlike the cause, different for each way to make the mistake.
        cause: Of the vocabulary in DESIGN.md, known to `sonde.core` or not yet.
        changes: The names of the recipe's values that are changed.
        values: Their values, of a training and a strength.
        weakest: Least strength that is drawn.
        strongest: Largest; strengths are drawn evenly by their logarithm, before any label is known.
        where: Whether the fault can befall a training.
        context: What the faulty training and its twin both have, for the mistake to be possible.
        also: Causes that are as right an answer.
        begins: The value in the recipe that holds the step at which the fault begins to act, "" for the first one.
        hard: Whether it is to be found within 5 steps.
        harms: What the twin has to be better in: `quality`, `reported`, `seconds` or `memory_mb`.
    """

    name: str
    cause: str
    changes: tuple[str, ...]
    values: Callable[[Training, float], tuple[Any, ...]]
    weakest: float = 1.0
    strongest: float = 1.0
    where: Callable[[Training], bool] = always
    context: Callable[[Training], Changes] = no_context
    also: tuple[str, ...] = ()
    begins: str = ""
    hard: bool = False
    harms: str = "quality"

    def draw(self, training: Training) -> float:
        """The strength for this training, the same for all its replicates."""
        rng = random.Random(f"{self.name} {training.family} {training.seed}")
        return math.exp(rng.uniform(math.log(self.weakest), math.log(self.strongest)))

    def twin(self, training: Training) -> Training:
        """The training without the fault."""
        return training.changed(self.context(training))

    def put_in(self, training: Training, strength: float) -> Training:
        """The same training with the fault."""
        twin = self.twin(training)
        return twin.changed(dict(zip(self.changes, self.values(twin, strength), strict=True)))

    def onset(self, training: Training) -> int:
        """The step at which a faulty training begins to differ from its twin."""
        if not self.begins:
            return 0
        part, leaf = self.begins.split(".")
        return int(getattr(getattr(training, part), leaf))
