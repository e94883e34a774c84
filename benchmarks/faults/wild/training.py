"""Train one case; runs in a process that was made for it."""

import time
from pathlib import Path
from typing import Any

import benchmarks.faults.wild.kinds  # noqa: F401
from benchmarks.faults.wild.kind import KINDS
from benchmarks.faults.wild.knobs import Knobs


def train(recipe: dict[str, Any], run: Path | None) -> dict[str, Any]:
    """Train a case from its plain values; what is left of the way from the trivial predictor is its quality."""
    import torch

    torch.set_num_threads(1)
    kind = KINDS[recipe["kind"]]
    knobs = Knobs(
        seed=recipe["seed"] * 10 + recipe["replicate"], steps=kind.steps, rate=recipe["rate"], fault=recipe["fault"],
        strength=recipe["strength"], run=run,
    )  # fmt: skip
    began = time.perf_counter()
    score = kind.train(knobs)
    seconds = time.perf_counter() - began
    reported = 1 - score()
    knobs.close()
    knobs.repair_modes()
    return {
        "quality": 1 - score(), "reported": reported, "step_ms": 1000 * seconds / kind.steps, "losses": knobs.losses,
    }  # fmt: skip
