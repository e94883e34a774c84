"""How people write loops: where gradients are cleared, how often is evaluated, and what is told to the monitor."""

import random
from typing import Any


def draw(rng: random.Random, *, closures: bool) -> dict[str, Any]:
    """Habits of one loop; closures only where nothing stands between backward and step."""
    accumulate = rng.choice((1, 1, 1, 1, 2, 4))
    clip = rng.choice((0.0, 0.0, 1.0, 5.0))
    return {
        "loop.accumulate": accumulate,
        "loop.zero_grad": rng.choice(("before", "before", "after")),
        "loop.clip": clip,
        "loop.closure": closures and accumulate == 1 and not clip and rng.random() < 0.15,
        "loop.evaluate_every": rng.choice((0, 0, 0, 25, 50, 100, -1)),
        "loop.tells_metrics": rng.random() < 0.6,
        "loop.tells_data": rng.random() < 0.7,
        "loop.tells_epochs": rng.random() < 0.6,
        "loop.tells_floats": rng.random() < 0.3,
    }
