"""Tables that are made on the host, brought to a device in the middle of a training."""

from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor


def uploaded(table: npt.NDArray[Any], device: torch.device) -> Tensor:
    """A copy of a table on a device, there when work on the current stream reads it.

    Nothing waits for the device: on the way to a GPU lies pinned memory, which torch keeps until the copy is made. A
    copy from anywhere else would wait for all that is queued.

    Example:
        >>> import numpy as np
        >>> uploaded(np.arange(3), torch.device("cpu"))
        tensor([0, 1, 2])
    """
    host = torch.from_numpy(table)
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host.clone()
