"""Facts about a training: small plain dictionaries, said when their numbers are known."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sonde.core.records import Float64
from sonde.probes.probe import Reading

Say = Callable[[str, Mapping[str, Any]], None]
"""Called with the name of a check and what it found; from the training thread or from the background."""

MOST_PLACES = 16


def settle(tensors: Sequence[Tensor], judge: Callable[[Float64], None]) -> list[Reading]:
    """Have numbers judged: at once where they lie on the CPU, else in the background when they have come home.

    Args:
        tensors: Small ones that nothing changes any more, all on one device.
        judge: Called once with all of them in one vector.
    """
    if all(tensor.is_cpu for tensor in tensors):
        parts = [tensor.detach().double().reshape(-1) for tensor in tensors]
        judge(torch.cat(parts).numpy() if parts else np.empty(0))
        return []

    def report(numbers: Float64) -> Sequence[Any]:
        judge(numbers)
        return ()

    return [Reading(tensors, report)]
