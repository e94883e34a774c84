"""Number formats."""

import contextlib
import random
from typing import Any

import torch
from benchmarks.faults.space.recipe import Precision


def draw(rng: random.Random, *, half: bool) -> dict[str, Any]:
    """Mostly single precision; sometimes bfloat16 where the architecture is quick in it."""
    return {"precision.autocast": "bfloat16" if half and rng.random() < 0.15 else "none"}


def casting(precision: Precision) -> contextlib.AbstractContextManager[Any]:
    """The context of the forward pass."""
    if precision.autocast == "none":
        return contextlib.nullcontext()
    return torch.autocast("cpu", dtype=getattr(torch, precision.autocast))


def scaler(precision: Precision) -> torch.amp.GradScaler:
    """Scales the loss, or does nothing."""
    return torch.amp.GradScaler("cpu", init_scale=2.0**14, enabled=precision.scaler)
