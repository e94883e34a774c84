"""The norm of each tensor of a list: what is measured of gradients at every step, however rarely the rest is."""

from collections.abc import Sequence

import torch
from torch import Tensor

# Squares of values beyond these leave the range of float32, or lose digits at its lower end.
_SMALLEST, _LARGEST = 1e-17, 1e17


@torch.no_grad()
def tensor_norms(tensors: Sequence[Tensor]) -> Tensor:
    """L2 norms in float64, one a tensor; NaN and infinite as they come.

    Summed up in float32, right to about 1e-6. On a CPU, where looking costs nothing, those that leave its range
    are measured again in float64, which takes seven times as long.

    Example:
        >>> tensor_norms([torch.tensor([3.0, 4.0]), 2.0**100 * torch.tensor([3.0, 4.0])]).log2()[1] > 102
        tensor(True)
    """
    real = [torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in tensors]
    norms: list[Tensor] = [torch.empty(0)] * len(real)
    for dtype in {t.dtype for t in real}:
        places = [i for i, t in enumerate(real) if t.dtype is dtype]
        wide = dtype if dtype in (torch.float32, torch.float64) else torch.float32
        for i, norm in zip(places, torch._foreach_norm([real[i] for i in places], 2, dtype=wide), strict=True):
            norms[i] = norm
    together = torch.stack([norm.double() for norm in norms])
    if together.device.type == "cpu":
        for i, norm in enumerate(together.tolist()):
            if not _SMALLEST < norm < _LARGEST and real[i].dtype is not torch.float64:
                together[i] = torch.linalg.vector_norm(real[i], dtype=torch.float64)
    return together
