"""All tasks by name, and the settings each is drawn with."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.faults.space.axes import losses
from benchmarks.faults.space.axes.tasks import pairs, pictures, reinforcement, sequences, vectors
from benchmarks.faults.space.axes.tasks.problem import Problem
from benchmarks.faults.space.recipe import Training


@dataclass(frozen=True, kw_only=True)
class Task:
    """How a problem is made and drawn.

    Args:
        make: From the recipe; the second for architectures over images.
        targets: A kind in `losses.CHOICES`, "" where the task has its own loss.
        sizes: To choose from.
        nums: Examples, to choose from.
        goal: The quality that is to be reached.
        steps: Fewest and most.
        make_images: The same for architectures over images.
        rate_factor: Of the architecture's rate.
    """

    make: Callable[[Training], Problem]
    targets: str
    sizes: tuple[int, ...] = (8, 12, 16)
    nums: tuple[int, ...] = (1024, 2048)
    goal: float = 0.5
    steps: tuple[int, int] = (200, 500)
    make_images: Callable[[Training], Problem] | None = None
    rate_factor: float = 1.0


TASKS: dict[str, Task] = {
    "tabular": Task(make=vectors.tabular, targets="classes"),
    "regression": Task(make=vectors.regression, targets="numbers"),
    "images": Task(make=pictures.images, make_images=pictures.images, targets="classes", steps=(150, 350)),
    "sequences": Task(make=sequences.series, targets="numbers", sizes=(8, 12)),
    "text": Task(make=sequences.text, targets="tokens", sizes=(12, 16), goal=0.55, steps=(200, 400)),
    "next-token": Task(make=sequences.next_token, targets="tokens", goal=0.55),
    "sets": Task(make=sequences.bags, targets="numbers", sizes=(6, 8)),
    "graphs": Task(make=sequences.graphs, targets="numbers", sizes=(6, 8)),
    "ranking": Task(make=pairs.ranking, targets="pairs"),
    "contrastive": Task(make=pairs.contrastive, make_images=pairs.image_contrastive, targets="views"),
    "autoencoding": Task(make=vectors.autoencoding, make_images=pictures.image_autoencoding, targets="noise",
                         sizes=(16, 24)),
    "diffusion": Task(make=vectors.diffusion, targets="noise", goal=0.75, nums=(2048, 4096)),
    "bandit": Task(make=reinforcement.bandit, targets="", goal=0.5, steps=(300, 600)),
    "values": Task(make=reinforcement.values, targets="", goal=0.5, steps=(300, 600)),
    "ratings": Task(make=vectors.ratings, targets="numbers", nums=(2048, 4096), steps=(500, 800), goal=0.6,
                    rate_factor=2.0),
    "fine-tuning": Task(make=vectors.fine_tuning, make_images=pictures.image_fine_tuning, targets="classes",
                        steps=(150, 300), rate_factor=0.3),
    "continual": Task(make=vectors.continual, targets="classes", steps=(300, 600)),
}  # fmt: skip


def draw(rng: random.Random, name: str) -> dict[str, Any]:
    """Sizes, noise, length and loss."""
    task = TASKS[name]
    return {
        "data.num": rng.choice(task.nums),
        "data.size": rng.choice(task.sizes),
        "data.classes": rng.choice((3, 4, 6)),
        "data.noise": round(rng.uniform(0.6, 1.2), 2),
        "data.label_noise": rng.choice((0.0, 0.0, 0.0, 0.05)) if task.targets in ("classes", "numbers") else 0.0,
        "loss.kind": losses.draw(rng, task.targets) if task.targets else "own",
        "loop.steps": rng.randint(*task.steps),
        "loop.batch": rng.choice((16, 32, 64)),
    }


def make(training: Training, *, images: bool) -> Problem:
    """The training's problem."""
    task = TASKS[training.task]
    return (task.make_images if images and task.make_images else task.make)(training)
