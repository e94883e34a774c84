"""Running a piece of the training once more, for its numbers only."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

_CPU = torch.device("cpu")


def random_states(models: Iterable[nn.Module]) -> dict[torch.device, Tensor]:
    """The states of torch's random generators: of the CPU and of the GPUs that the models' tensors are on."""
    tensors = (t for model in models for t in (*model.parameters(), *model.buffers()))
    gpus = {tensor.device for tensor in tensors if tensor.is_cuda}
    return {_CPU: torch.get_rng_state(), **{gpu: torch.cuda.get_rng_state(gpu) for gpu in gpus}}


@contextmanager
def untouched(models: Iterable[nn.Module], random: Mapping[torch.device, Tensor] | None = None) -> Iterator[None]:
    """Whatever runs inside leaves those generators and the buffers of the models as they were.

    Args:
        models: Whose.
        random: The states that the generators have inside; by default those that they have.
    """
    modules = list(models)
    states = random_states(modules)
    buffers = [(buffer, buffer.detach().clone()) for model in modules for buffer in model.buffers()]
    try:
        _set_random(random or {})
        yield
    finally:
        _set_random(states)
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)


def _set_random(states: Mapping[torch.device, Tensor]) -> None:
    for device, state in states.items():
        if device == _CPU:
            torch.set_rng_state(state)
        else:
            torch.cuda.set_rng_state(state, device)
