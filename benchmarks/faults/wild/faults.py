"""Faults that any kind of training can have; `knobs` puts them in, and imports nothing but their names."""

import random
from collections.abc import Iterable
from dataclasses import dataclass

from sonde.core.causes import Cause

WILD = "wild/"
"""What the families of these trainings begin with."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One way to spoil a training.

    Args:
        name: Of the fault.
        cause: What a diagnosis should name.
        low: The least strength.
        high: The greatest strength; between them it is drawn evenly in logarithms.
        also: Causes that are right as well.
        needs: What the kind must have.
        bars: What the kind must not have.
        at: The share of the training after which it begins to act.
        harms: The number of the manifest that it makes worse.
        hard: Whether the training is lost at once.
    """

    name: str
    cause: Cause
    low: float = 1.0
    high: float = 1.0
    also: tuple[Cause, ...] = ()
    needs: str = ""
    bars: str = ""
    at: float = 0.0
    harms: str = "quality"
    hard: bool = False

    def fits(self, has: frozenset[str]) -> bool:
        """Whether a kind with these can have it."""
        return set(self.needs.split()) <= has and not set(self.bars.split()) & has

    def draw(self, seed: str) -> float:
        """A strength."""
        return float(f"{self.low * (self.high / self.low) ** random.Random(seed).random():.3g}")

    def onset_step(self, steps: int) -> int:
        """The step at which it begins to act."""
        return int(self.at * steps)


_ALL = (
    Fault(name="rate-high", cause=Cause.LR_TOO_HIGH, low=30, high=300, also=(Cause.EXPLODING_GRADIENTS,)),
    Fault(name="rate-low", cause=Cause.LR_TOO_LOW, low=1 / 1000, high=1 / 100),
    Fault(name="rate-spike", cause=Cause.LR_SPIKE, low=30, high=100, at=0.5, bars="schedule"),
    Fault(name="decays-early", cause=Cause.SCHEDULE_DECAYS_TOO_FAST, bars="schedule"),
    Fault(name="gain", cause=Cause.BAD_INITIALISATION, low=5, high=10),
    Fault(name="gain-first", cause=Cause.BAD_INITIALISATION, low=10, high=30),
    Fault(name="equal-weights", cause=Cause.SYMMETRIC_INITIALISATION),
    Fault(name="dead-start", cause=Cause.DEAD_UNITS, low=5, high=20, also=(Cause.BAD_INITIALISATION,), needs="relu"),
    Fault(name="half-not-given", cause=Cause.PARAMETER_NOT_IN_OPTIMIZER, low=0.25, high=1.0, bars="closure"),
    Fault(name="half-frozen", cause=Cause.FROZEN_LAYER, low=0.25, high=1.0, bars="closure"),
    Fault(name="inputs-scaled", cause=Cause.UNNORMALISED_INPUTS, low=100, high=1000, needs="inputs"),
    Fault(name="targets-permuted", cause=Cause.NO_LEARNABLE_SIGNAL, needs="targets"),
    Fault(name="targets-constant", cause=Cause.NO_LEARNABLE_SIGNAL, needs="targets"),
    Fault(name="targets-noisy", cause=Cause.LABEL_NOISE, low=0.4, high=0.6, needs="targets"),
    Fault(name="order-by-target", cause=Cause.DATA_NOT_SHUFFLED, needs="targets order"),
    Fault(name="no-zero-grad", cause=Cause.MISSING_ZERO_GRAD, bars="own-step"),
    Fault(name="nan-in-batch", cause=Cause.NONFINITE_INPUT, also=(Cause.BAD_BATCH,), needs="inputs", at=0.7, hard=True),
    Fault(name="huge-batch", cause=Cause.BAD_BATCH, low=300, high=3000, also=(Cause.MISSING_CLIPPING,),
          needs="inputs", at=0.7),
    Fault(name="huge-gradient", cause=Cause.BAD_BATCH, low=300, high=3000,
          also=(Cause.MISSING_CLIPPING, Cause.EXPLODING_GRADIENTS), bars="own-step closure clip", at=0.7),
    Fault(name="drift", cause=Cause.DATA_DRIFT, low=2, high=5, needs="inputs", at=0.5),
    Fault(name="decay-strong", cause=Cause.WEIGHT_DECAY_TOO_STRONG, low=0.3, high=1.0, bars="closure own-step"),
    Fault(name="clip-tiny", cause=Cause.CLIP_TOO_AGGRESSIVE, low=1e-4, high=1e-3, needs="sgd", bars="own-step"),
    Fault(name="batch-tiny", cause=Cause.BATCH_TOO_SMALL, low=1, high=2, needs="batch", bars="norm"),
    Fault(name="batch-tiny-norm", cause=Cause.BATCHNORM_SMALL_BATCH, low=2, high=2, also=(Cause.BATCH_TOO_SMALL,),
          needs="batch norm"),
    Fault(name="never-train-mode", cause=Cause.EVAL_MODE_IN_TRAINING, needs="norm"),
    Fault(name="never-eval-mode", cause=Cause.TRAIN_MODE_IN_EVALUATION, also=(Cause.TRAIN_EVAL_MISMATCH,),
          needs="dropout", harms="reported"),
    Fault(name="dropout-high", cause=Cause.UNDERFITTING, low=0.85, high=0.95, needs="dropout"),
    Fault(name="leak", cause=Cause.MEMORY_LEAK, low=2, high=4, harms="memory_mb"),
    Fault(name="softmax-twice", cause=Cause.DOUBLE_SOFTMAX, needs="softmax"),
    Fault(name="reset-late", cause=Cause.STATE_RESET, also=(Cause.OPTIMIZER_STATE_LOST,), at=0.85, bars="closure"),
    Fault(name="target-never-moves", cause=Cause.TARGET_NETWORK_STALE, needs="target-net"),
)  # fmt: skip

FAULTS: dict[str, Fault] = {fault.name: fault for fault in _ALL}


def drawn(has: Iterable[str], num: int, *, seed: str) -> list[Fault]:
    """Different faults that a kind with these can have."""
    fitting = [fault for fault in _ALL if fault.fits(frozenset(has))]
    return random.Random(seed).sample(fitting, min(num, len(fitting)))
