"""What a training held when it ran out of memory, and with which batch."""

import math
import re
import traceback
from collections.abc import Mapping
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from sonde.core.tags import clean_name
from sonde.probes.allocators import Allocators
from sonde.probes.batches import shapes_of
from sonde.probes.hosts import Hosts
from sonde.probes.memory import Memory

_MOST_LINKS = 10  # of a chain of exceptions, which may be a ring
_SAID = ("DefaultCPUAllocator: can't allocate memory", "DefaultCPUAllocator: not enough memory", " out of memory")
_ASKED = re.compile(r"(?:tried|unable) to allocate ([\d.]+) (bytes|[KMGT]iB)", re.IGNORECASE)
_UNITS = {"bytes": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_GPU = re.compile(r"\bGPU (\d+)")
_BACKWARD = "_engine_run_backward"  # of `torch.autograd`, through which every backward pass goes


def origin(error: BaseException | None) -> BaseException | None:
    """The failed allocation that an exception is, or came of; None where there was none.

    Such are torch's `OutOfMemoryError`, the errors of its allocators that have no type of their own, and `MemoryError`.
    What an exception came of is what the interpreter would print above it.

    Example:
        >>> try:
        ...     try:
        ...         raise torch.OutOfMemoryError("CUDA out of memory.")
        ...     except RuntimeError as error:
        ...         raise ValueError("step failed") from error
        ... except ValueError as error:
        ...     origin(error), origin(KeyError("loss"))
        (OutOfMemoryError('CUDA out of memory.'), None)
    """
    for _ in range(_MOST_LINKS):
        if not isinstance(error, Exception):  # Ctrl-C is what ended the training, whatever was being handled
            return None
        is_said = isinstance(error, RuntimeError) and any(words in str(error) for words in _SAID)
        if is_said or isinstance(error, torch.OutOfMemoryError | MemoryError):
            return error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return None


def held_at(
    error: BaseException,
    models: Mapping[str, nn.Module],
    optimizers: Mapping[str, Optimizer],
    batch: Mapping[str, list[int]],
) -> dict[str, Any]:
    """What there is to say about a failed allocation, in values that JSON can say; nothing is allocated for it.

    `memory` has bytes by tag: what `Memory`, `Allocators` and `Hosts` measure, as it is now. The exception's frames
    still hold what the training held. `batch` has the shape of each tensor by its place: those that the model was
    called with, where it failed inside of that call.

    Args:
        error: As `origin` gives it.
        models: By name.
        optimizers: By name.
        batch: The shapes of the batch that was fetched last, for failures outside of the model's call.
    """
    text = str(error)
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    called = next((shapes for frame in frames if (shapes := _called_with(frame, models))), None)
    asked, gpu = _ASKED.search(text), _GPU.search(text)
    is_host = isinstance(error, MemoryError) or "CPUAllocator" in text
    return {
        "reason": text.partition("\n")[0][:200],
        "device": "cpu" if is_host else f"cuda:{gpu[1]}" if gpu else "gpu",
        "requested": float(asked[1]) * _UNITS[asked[2].lower()] if asked else None,
        "phase": _phase(frames, is_called=called is not None),
        "module": _innermost(frames, models),
        "batch": called or dict(batch),
        "memory": _memory(models, optimizers),
    }


def _called_with(frame: FrameType, models: Mapping[str, nn.Module]) -> dict[str, list[int]]:
    """The shapes that a model was called with, where the frame is its call."""
    found = frame.f_locals
    if "args" in found and "kwargs" in found and any(found.get("self") is model for model in models.values()):
        return shapes_of(found["args"]) | shapes_of(found["kwargs"])
    return {}


def _phase(frames: list[FrameType], *, is_called: bool) -> str:
    if any(frame.f_code.co_name == _BACKWARD for frame in frames):
        return "backward"
    if any(isinstance(frame.f_locals.get("self"), Optimizer) for frame in frames):
        return "optimizer"
    return "forward" if is_called else ""


def _innermost(frames: list[FrameType], models: Mapping[str, nn.Module]) -> str:
    """The module in whose code it failed; empty where that is a whole model, or none."""
    names = {
        id(module): clean_name(name)
        for prefix, model in models.items()
        for name, module in model.named_modules(prefix=prefix)
    }
    return next((name for frame in reversed(frames) if (name := names.get(id(frame.f_locals.get("self"))))), "")


def _memory(models: Mapping[str, nn.Module], optimizers: Mapping[str, Optimizer]) -> dict[str, float]:
    devices = {p.device for model in models.values() for p in model.parameters()}
    found: dict[str, float] = {}
    for probe in (Memory(models, optimizers), Allocators(lambda: list(devices)), Hosts()):
        probe.arm([0])
        for reading in probe.collect():
            for row in reading.report(np.empty(0)):
                found.update(zip(row.columns.tags, row.values.tolist(), strict=True))
        probe.close()
    return {
        tag: value
        for tag, value in found.items()
        if (tag.startswith("memory/") or tag == "host/rss") and math.isfinite(value)
    }
