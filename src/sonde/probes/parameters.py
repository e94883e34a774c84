"""Which parameters an optimiser updates, and what they are called."""

import contextlib
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from sonde.core.tags import clean_name, is_name
from sonde.probes.walks import places

LAZY = "lazy and not used yet"
NO_FLOATS = "without floating-point values in plain memory"


class Watched(NamedTuple):
    """A parameter and the name that stands behind `@` in its tags."""

    name: str
    parameter: Tensor


def parameter_names(models: Mapping[str, nn.Module]) -> dict[int, str]:
    """The name of every parameter, by its `id`: without wrappers, a tied one once, prefixed where models have names.

    Where leaving out a wrapper would make two parameters alike, both keep their full names. A model that does not give
    its names (its `named_parameters` raises) is walked without asking it.
    """
    full = {
        id(parameter): ".".join(filter(None, (prefix, name)))
        for prefix, model in reversed(
            list(models.items())
        )  # of a parameter that two models share, the first name counts
        for name, parameter in reversed(_named(model))
    }
    times = Counter(map(clean_name, full.values()))
    return {key: clean if times[clean := clean_name(name)] == 1 else name for key, name in full.items()}


def _named(model: nn.Module) -> list[tuple[str, Tensor]]:
    with contextlib.suppress(Exception):  # the user's: the model trains all the same, and `walks.trouble` has it said
        named: list[tuple[str, Tensor]] = list(model.named_parameters())
        if all(isinstance(name, str) for name, _ in named):
            return named
    return [(name, p) for place in places("", model) if not place.is_alias for _, name, p in place.parameters]


def of_optimizer(optimizer: Optimizer, names: Mapping[int, str], name: str = "") -> list[Watched]:
    """The optimiser's parameters in its own order.

    One that no model has is named after the optimiser's name, where it has one, its group and its place there.

    Those that cannot be watched (see `trouble`) are left out.
    """
    return [watched for watched in _all(optimizer, names, name) if trouble(*watched) is None]


def left_out(optimizer: Optimizer, names: Mapping[int, str], name: str = "") -> dict[str, int]:
    """How many of its parameters cannot be watched, by the reason (see `trouble`)."""
    reasons = (trouble(*watched) for watched in _all(optimizer, names, name))
    return dict(Counter(reason for reason in reasons if reason is not None))


def _all(optimizer: Optimizer, names: Mapping[int, str], name: str) -> list[Watched]:
    return [
        Watched(names.get(id(parameter)) or ".".join(filter(None, (name, f"group{group}", str(place)))), parameter)
        for group, settings in enumerate(optimizer.param_groups)
        for place, parameter in enumerate(settings["params"])
    ]


def trouble(name: str, parameter: Tensor) -> str | None:
    """Why a parameter cannot be watched, in the words that stand behind "is" or "are"; None where it can be."""
    if is_lazy(parameter):
        return LAZY
    if parameter.layout is not torch.strided or not (parameter.is_floating_point() or parameter.is_complex()):
        return NO_FLOATS
    if parameter.device.type == "meta":
        return "on the meta device, without values"
    if parameter.element_size() < 2:
        return f"of {parameter.dtype}, with which torch does not calculate"
    if not is_name(name):
        return "named with control characters or too many of them"
    return None


def of_groups(optimizer: Optimizer) -> list[Tensor]:
    """All tensors that an optimiser has, whether they can be watched or not."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def of_models(models: Mapping[str, nn.Module]) -> list[Tensor]:
    """The parameters of models, each once, without lazy ones that were not used yet."""
    found = {id(p): p for model in models.values() for p in model.parameters()}
    return [parameter for parameter in found.values() if not is_lazy(parameter)]


def embedding_tables(models: Mapping[str, nn.Module]) -> set[int]:
    """The weights of embeddings, as their `id`."""
    return weights_of(models, (nn.Embedding, nn.EmbeddingBag))


def weights_of(models: Mapping[str, nn.Module], kinds: tuple[type[nn.Module], ...]) -> set[int]:
    """The weights of modules of some classes, as their `id`.

    Those that a parametrisation computes are none: asking for one would compute it, and a spectral norm changes by
    that.
    """
    modules = (module for model in models.values() for module in model.modules() if isinstance(module, kinds))
    return {id(weight) for module in modules if (weight := vars(module)["_parameters"].get("weight")) is not None}


def devices_of(optimizers: Mapping[str, Optimizer]) -> list[torch.device]:
    """Where the parameters of optimisers are, each device once, in their order; the meta device is none.

    Example:
        >>> devices_of({"": torch.optim.SGD([torch.zeros(1), torch.zeros(1, device="meta")])})
        [device(type='cpu')]
    """
    devices = dict.fromkeys(p.device for optimizer in optimizers.values() for p in of_groups(optimizer))
    return [device for device in devices if device.type != "meta"]


def device_of(optimizers: Mapping[str, Optimizer]) -> torch.device:
    """Where the first parameter is that is anywhere."""
    return next(iter(devices_of(optimizers)), torch.device("cpu"))


def num_parameters(optimizer: Optimizer) -> int:
    """How many tensors the optimiser has now: cheap, to notice those that were added."""
    return sum([len(group["params"]) for group in optimizer.param_groups])  # a generator would be slower
