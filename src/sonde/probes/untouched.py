"""Running a piece of the training once more, for its numbers only."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def untouched(models: Iterable[nn.Module]) -> Iterator[None]:
    """Whatever runs inside leaves the random generators of torch and the buffers of the models as they were.

    The generators are those of the CPU and of the GPUs that the models' parameters are on.
    """
    modules = list(models)
    tensors = [t for model in modules for t in (*model.parameters(), *model.buffers())]
    devices = sorted({t.device.index for t in tensors if t.is_cuda})
    buffers = [buffer for model in modules for buffer in model.buffers()]
    with torch.random.fork_rng(devices=devices):
        kept = [buffer.detach().clone() for buffer in buffers]
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, before in zip(buffers, kept, strict=True):
                    buffer.copy_(before)
