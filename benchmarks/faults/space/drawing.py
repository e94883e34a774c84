"""A training from a family and a seed: every axis drawn by a private generator."""

import random

from benchmarks.faults.space.axes import habits, optimisers, precisions, schedules
from benchmarks.faults.space.axes.architectures import catalogue as architectures
from benchmarks.faults.space.axes.tasks import catalogue as tasks
from benchmarks.faults.space.families import FAMILIES
from benchmarks.faults.space.recipe import Training

_DENSE = frozenset({"mlp", "residual", "mixture", "siamese", "deep-set"})


def draw(family: str, seed: int) -> Training:
    """The healthy training of this seed; the same one whenever it is asked for.

    Example:
        >>> draw("regression/mlp", 3) == draw("regression/mlp", 3)
        True
    """
    if family not in FAMILIES:
        raise ValueError(f"`draw(family=...)` must be one of {', '.join(FAMILIES)}, got {family!r}.")
    rng = random.Random(f"{family} {seed}")
    task, architecture = family.split("/")
    if task == "two-player":
        steps = rng.randint(500, 800)
        changes = {"loop.steps": steps, "loop.batch": rng.choice((32, 64)), "optimiser.name": "adam",
                   "optimiser.rate": round(rng.uniform(1e-3, 2e-3), 5), "model.width": rng.choice((32, 48)),
                   "data.size": 2, "loss.kind": "own", "loop.evaluate_every": rng.choice((50, 100))}  # fmt: skip
        return Training(family=family, seed=seed).changed(changes)
    of = architectures.ARCHITECTURES[architecture]
    factor = tasks.TASKS[task].rate_factor
    changes = tasks.draw(rng, task) | architectures.draw(rng, architecture)
    changes |= optimisers.draw(
        rng, rate=of.rate * factor, adaptive_rate=of.adaptive_rate * factor, adaptive_only=of.adaptive_only
    )
    changes |= schedules.draw(rng, steps=changes["loop.steps"], warmup=of.warmup)
    changes |= habits.draw(rng, closures=task != "bandit")
    changes |= precisions.draw(rng, half=architecture in _DENSE and task not in ("values", "bandit"))
    if task == "values":
        changes["model.norm"] = "none"  # states are few and repeat: statistics of a batch say nothing
        changes["model.dropout"] = 0.0
    if task == "fine-tuning":
        changes["optimiser.frozen"] = rng.choice((0.0, 0.0, 0.4))
    if changes["loop.accumulate"] > 1:
        changes["loop.batch"] = max(8, changes["loop.batch"] // changes["loop.accumulate"])
    return Training(family=family, seed=seed).changed(changes)
