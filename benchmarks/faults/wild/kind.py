"""A kind of training: a function that trains as a public script does, and what may be done to it."""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.faults.wild.knobs import Knobs

Score = Callable[[], float]
"""The held-out quality after the training: 1 for perfect, 0 for the trivial predictor."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of training.

    Args:
        name: Of the kind.
        train: Trains, and returns what scores the result.
        steps: How many steps it takes.
        goal: The most that a healthy training leaves of the way from the trivial predictor to the perfect one.
        has: What faults can take hold of: `inputs`, `targets`, `order`, `batch`, `norm`, `dropout`, `relu`, `clip`,
            `schedule`, `sgd`, `softmax`, `target-net`, `closure`, `own-step` (gradients that its own code handles).
    """

    name: str
    train: Callable[[Knobs], Score]
    steps: int
    goal: float
    has: frozenset[str]


KINDS: dict[str, Kind] = {}
"""All kinds by name, once `benchmarks.faults.wild.kinds` is imported."""


def kind(*, steps: int, has: str, goal: float = 0.5) -> Callable[[Callable[[Knobs], Score]], Callable[[Knobs], Score]]:
    """Enter a function as a kind under its own name."""

    def enter(train: Callable[[Knobs], Score]) -> Callable[[Knobs], Score]:
        name = train.__name__.replace("_", "-")
        KINDS[name] = Kind(name=name, train=train, steps=steps, goal=goal, has=frozenset(has.split()))
        return train

    return enter
