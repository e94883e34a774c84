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
        knobs: What a remedy changed, for trainings that let it: see the methods. A key without a method of its own is
            an action that needs no value.
        folder: Of the run.
        monitor: Watches the training instead of Sonde, called as `sonde.watch` is with models and optimisers: a peer,
            or `unwatched`.
    """

    seed: int
    folder: Path
    fixed: bool = False
    knobs: Mapping[str, float] = field(default_factory=dict)
    monitor: Callable[..., Any] | None = None

    def watch(self, model: Any, optimizer: Any, **settings: Any) -> Any:
        """`sonde.watch` as a user would call it."""
        if self.monitor is not None:
            return self.monitor(model, optimizer, **settings)
        return sonde.watch(model, optimizer, run=self.folder, console="quiet", **settings)

    def lr(self, rate: float) -> float:
        """The learning rate, as a remedy may have changed it: `lr_factor`."""
        return rate * self.knobs.get("lr_factor", 1.0)

    def clip_norm(self, limit: float | None) -> float | None:
        """The clipping norm, None for no clipping, as a remedy may have changed it: `clip_norm`."""
        return self.knobs.get("clip_norm", limit)

    def weight_decay(self, decay: float) -> float:
        """The weight decay, as a remedy may have set or scaled it: `weight_decay`, `weight_decay_factor`."""
        return self.knobs.get("weight_decay", decay) * self.knobs.get("weight_decay_factor", 1.0)

    def dropout(self, share: float) -> float:
        """The share of units to drop, as a remedy may have set it: `dropout`."""
        return self.knobs.get("dropout", share)

    def warmup_steps(self, steps: float) -> float:
        """The length of the warm-up, as a remedy may have set it: `warmup_steps`."""
        return self.knobs.get("warmup_steps", steps)

    def batch_size(self, size: int) -> int:
        """Examples to a batch, as a remedy may have scaled it: `batch_factor`."""
        return int(size * self.knobs.get("batch_factor", 1))

    def does(self, action: str) -> bool:
        """Whether a remedy asks for this action, such as `early-stop`."""
        return action in self.knobs


@dataclass(frozen=True)
class Scenario:
    """A training and the truth about it.

    Args:
        name: Kebab-case, says what is trained and what is wrong: `mlp-lr-too-high`.
        cause: The right answer, of `sonde.core.causes`; None where the training is healthy.
        train: Trains and returns the quality that counts (a validation loss, lower is better; NaN where it diverged).
            Trains the repaired twin where `session.fixed`.
        also: Further answers that are as right.
        onset: The step at which the fault begins to act, 0 where it is there from the start. A schedule that decays too
            fast acts from the step on at which its rate is below half of its twin's: before, both train about alike.
        turns: Whether it is a fault of too much training. It begins to act at the run's own best evaluation: up to
            there, more training made the model better.
        hard: Whether it is to be found within 5 steps of its onset (loop bugs, NaN, missing updates).
        ranks: Processes that train together.
        tolerance: How much worse than its twin's, relatively, a repaired run's quality may be.
        repairable: Whether a remedy can be applied through `Session.knobs` and the training be run again with it.
        cures: Actions that the twin itself carries out: a remedy with one of them needs no run to be right, if the
            cause it belongs to is.
    """

    name: str
    cause: str | None
    train: Callable[[Session], float]
    also: tuple[str, ...] = ()
    onset: int = 0
    turns: bool = False
    hard: bool = False
    ranks: int = 1
    tolerance: float = 0.2
    repairable: bool = False
    cures: tuple[str, ...] = ()
