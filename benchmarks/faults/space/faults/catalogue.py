"""All faults by name, and those that are drawn for a training."""

import random

from benchmarks.faults.space.faults import data, initialisation, loop, model, rate, resources
from benchmarks.faults.space.faults.fault import Fault
from benchmarks.faults.space.recipe import Training

FAULTS: dict[str, Fault] = {
    fault.name: fault for place in (rate, initialisation, loop, data, model, resources) for fault in place.FAULTS
}


def applicable(training: Training) -> list[Fault]:
    """Those that can befall it."""
    return [fault for fault in FAULTS.values() if fault.where(training)]


def drawn(training: Training, num: int) -> list[Fault]:
    """So many of them, by a private generator; nothing is known of their effect."""
    found = applicable(training)
    return random.Random(f"faults {training.family} {training.seed}").sample(found, min(num, len(found)))
