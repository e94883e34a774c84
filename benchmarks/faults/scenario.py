"""What a scenario is: a small real training, written as a user would, with or without a fault.

The training does not know who judges it, and the monitor does not know the truth: nothing of a scenario's name or cause
reaches the run.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sonde


@dataclass
class Session:
    """One run of a scenario.

    Attributes:
        seed: Of data, initialisation and noise; even ones are for tuning, odd ones for the test.
        fixed: Whether this is the repaired twin.
        knobs: What a remedy changed, by name, for trainings that let it: see `lr`, `clip_norm` and `knob`.
        folder: Of the run.
        steps_run: Filled in by the training.
    """

    seed: int
    folder: Path
    fixed: bool = False
    knobs: Mapping[str, float] = field(default_factory=dict)
    on_finding: Callable[[Any], None] | None = None

    def watch(self, model: Any, optimizer: Any, **settings: Any) -> sonde.Watch:
        """`sonde.watch` as a user would call it."""
        return sonde.watch(model, optimizer, run=self.folder, console="quiet", **settings)

    def lr(self, rate: float) -> float:
        """The learning rate, as a remedy may have changed it: `lr_factor`."""
        return rate * self.knobs.get("lr_factor", 1.0)

    def clip_norm(self, limit: float | None) -> float | None:
        """The clipping norm, None for no clipping, as a remedy may have changed it: `clip_norm`."""
        return self.knobs.get("clip_norm", limit)

    def knob(self, name: str, value: float) -> float:
        """Any other setting that a remedy may change: `weight_decay`, `warmup_steps`, `dropout`, `batch_size`, …"""
        return self.knobs.get(name, value)


@dataclass(frozen=True)
class Scenario:
    """A training and the truth about it.

    Args:
        name: Kebab-case, says what is trained and what is wrong: `mlp-lr-too-high`.
        cause: The right answer, of `sonde.core.causes`; None where the training is healthy.
        train: Trains and returns the quality that counts (a validation loss, lower is better; NaN where it diverged).
            Trains the repaired twin where `session.fixed`.
        also: Further answers that are as right.
        onset: The step at which the fault begins to act, 0 where it is there from the start.
        hard: Whether it is to be found within 5 steps of its onset (loop bugs, NaN, missing updates).
        ranks: Processes that train together.
        tolerance: How much worse than its twin's, relatively, a repaired run's quality may be.
        repairable: Whether a remedy's value can be applied through `Session.knobs`; else the text of the remedy counts.
    """

    name: str
    cause: str | None
    train: Callable[[Session], float]
    also: tuple[str, ...] = ()
    onset: int = 0
    hard: bool = False
    ranks: int = 1
    tolerance: float = 0.2
    repairable: bool = False
