"""How the learning rate changes over a training."""

import math
import random
from typing import Any

from benchmarks.faults.space.recipe import Schedule

CHOICES = ("constant", "constant", "cosine", "cosine", "linear", "epochs")


def draw(rng: random.Random, *, steps: int, warmup: bool) -> dict[str, Any]:
    """A schedule for a training of so many steps, with a warm-up where the architecture wants one."""
    kind = rng.choice(CHOICES)
    short = rng.choice((0, 0, 0, steps // 20))
    return {
        "schedule.kind": kind,
        "schedule.warmup_steps": steps // 10 if warmup else short,
        "schedule.final": rng.choice((0.01, 0.1)),
    }


def factor(schedule: Schedule, step: int, *, steps: int, epoch: int) -> float:
    """The rate of a step, from 0 on, as a share of its peak.

    Args:
        step: Of the training.
        steps: In all.
        epoch: That the step is in, from 0 on.
    """
    share = min(1.0, step / max(1, steps - 1))
    if schedule.kind == "cosine":
        level = schedule.final + (1 - schedule.final) * (1 + math.cos(math.pi * share)) / 2
    elif schedule.kind == "linear":
        level = 1 - (1 - schedule.final) * share
    elif schedule.kind == "exponential":
        level = schedule.final**share
    elif schedule.kind == "epochs":
        level = schedule.gamma ** (step if schedule.each_batch else epoch)
    else:
        level = 1.0
    if step < schedule.warmup_steps:
        level *= (step + 1) / schedule.warmup_steps
    if schedule.spike_step <= step < schedule.spike_step + schedule.spike_steps and schedule.spike_step >= 0:
        level *= schedule.spike_factor
    return level
