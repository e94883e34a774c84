"""Computing in the middle of a training without its noticing."""

import contextlib
from collections.abc import Iterator

import torch
from torch.utils._python_dispatch import _disable_current_modes, is_in_torch_dispatch_mode

_NOTHING = contextlib.nullcontext()


@contextlib.contextmanager
def apart(device: torch.device) -> Iterator[None]:
    """Compute without training noticing: no graph, no autocast, and nobody's mode told of it.

    Selective activation checkpointing uses such a mode: it hands the results of the first forward to the second in
    the order in which they came, ours among them.
    """
    # Where there is none, leaving it takes as long as all the rest.
    autocast = torch.autocast(device.type, enabled=False) if torch.is_autocast_enabled(device.type) else _NOTHING
    modes = _disable_current_modes() if is_in_torch_dispatch_mode() else _NOTHING
    with torch._C.DisableTorchFunction(), torch.no_grad(), autocast, modes:
        yield
