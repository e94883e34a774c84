"""The gradient of a validation batch, to be laid beside that of the training."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from sonde.probes.norms import tensor_norms
from sonde.probes.untouched import untouched


def gradient_norm(loss: Callable[[], Tensor], models: Iterable[nn.Module]) -> Tensor:
    """The L2 norm of a loss's gradient over all trained parameters, in float64, on their device.

    `backward` is not called: no parameter's `grad` is touched, and no wrapper exchanges anything for it.

    Args:
        loss: Gives it; called once, with gradients.
        models: Whose parameters.

    Example:
        >>> net = nn.Linear(2, 1, bias=False)
        >>> gradient_norm(lambda: net(torch.tensor([3.0, 4.0])).sum(), [net])
        tensor(5., dtype=torch.float64)
    """
    modules = list(models)
    trained = [p for model in modules for p in model.parameters() if p.requires_grad]
    with untouched(modules), torch.enable_grad():
        found = torch.autograd.grad(loss(), trained, allow_unused=True)
        norm: Tensor = tensor_norms([gradient for gradient in found if gradient is not None]).norm()
    return norm
