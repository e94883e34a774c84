"""Which parameters an optimiser updates, and what they are called."""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from sonde.core.tags import clean_name


class Watched(NamedTuple):
    """A parameter and the name that stands behind `@` in its tags."""

    name: str
    parameter: Tensor


def parameter_names(models: Mapping[str, nn.Module]) -> dict[int, str]:
    """The name of every parameter, by its `id`: without wrappers, a tied one once, prefixed where models have names.

    Where leaving out a wrapper would make two parameters alike, both keep their full names.
    """
    full = {
        id(parameter): ".".join(filter(None, (prefix, name)))
        for prefix, model in reversed(
            list(models.items())
        )  # of a parameter that two models share, the first name counts
        for name, parameter in reversed(list(model.named_parameters()))
    }
    times = Counter(map(clean_name, full.values()))
    return {key: clean if times[clean := clean_name(name)] == 1 else name for key, name in full.items()}


def of_optimizer(optimizer: Optimizer, names: Mapping[int, str], name: str = "") -> list[Watched]:
    """The optimiser's parameters in its own order.

    One that no model has is named after the optimiser's name, where it has one, its group and its place there.

    Those without floating-point values in plain memory (integers, sparse ones) are left out.
    """
    return [
        Watched(names.get(id(parameter)) or ".".join(filter(None, (name, f"group{group}", str(place)))), parameter)
        for group, settings in enumerate(optimizer.param_groups)
        for place, parameter in enumerate(settings["params"])
        if _is_measurable(parameter)
    ]


def _is_measurable(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and (tensor.is_floating_point() or tensor.is_complex())


def num_parameters(optimizer: Optimizer) -> int:
    """How many tensors the optimiser has now: cheap, to notice those that were added."""
    return sum(len(group["params"]) for group in optimizer.param_groups)
