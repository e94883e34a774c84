"""Makes the table of what models are made of, from their modules and optimisers as they are: nothing is computed."""

from collections import Counter
from collections.abc import Mapping

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import ParametrizationList
from torch.optim import Optimizer

from sonde.core.model_table import ModelTable, ModuleRow, ParameterRow
from sonde.core.parameter_kinds import Kind, kind_by_name
from sonde.core.printable import one_line
from sonde.core.tags import clean_name, is_name
from sonde.probes.parameters import LAZY, of_optimizer, parameter_names
from sonde.probes.walks import Place, is_wrapper, places

_MADE_CLASSES = ("FSDP", "Parametrized")  # torch puts these before the name of a class that it derives
_MULTIPLY = (nn.Linear, nn.Bilinear, _ConvNd, nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention)
_NORMALISE = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
_MOST_CHARS = 200
_MOST_TIED = 16
_ODD_NAME = "named with control characters or too many of them"


def model_table(models: Mapping[str, nn.Module], optimizers: Mapping[str, Optimizer]) -> ModelTable:
    """The modules and parameters of models, and where optimisers have them.

    Modules and parameters are read where torch keeps them, so that no code of the user's is called. What cannot be in
    the table (lazy parameters that were not used yet, names with control characters) is counted.

    Args:
        models: By name; a name that is not empty stands before the names of the model's modules.
        optimizers: By name. Parameters that no model has are in the table as well.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 4), nn.LayerNorm(4))
        >>> import torch
        >>> for row in model_table({"": net}, {"": torch.optim.SGD(net.parameters())}).parameters:
        ...     print(row.name, row.kind, row.shape)
        0.weight matrix (4, 2)
        0.bias bias (4,)
        1.weight normalisation (4,)
        1.bias bias (4,)
    """
    names = parameter_names(models)
    groups = {
        id(parameter): (number, name)
        for name, optimizer in reversed(list(optimizers.items()))
        for number, group in enumerate(optimizer.param_groups)
        for parameter in group["params"]
    }
    left_out: Counter[str] = Counter()
    modules: dict[str, ModuleRow] = {}
    found: dict[int, tuple[Tensor, Kind]] = {}
    others: dict[int, list[str]] = {}
    """Every name of each parameter."""
    for model_name, place in ((name, place) for name, model in models.items() for place in places(name, model)):
        if not place.is_alias and not is_wrapper(place.module):
            name = _module_name(model_name, place)
            left_out[_ODD_NAME] += not is_name(name)
            if is_name(name) and name not in modules:
                modules[name] = ModuleRow(name=name, type=_class_name(type(place.module)), depth=place.depth)
        for local, whole, parameter in place.parameters:
            full = clean_name(whole)
            names.setdefault(id(parameter), full)
            others.setdefault(id(parameter), []).append(full)
            found.setdefault(id(parameter), (parameter, _kind(place.module, local, full, parameter)))
    for name, optimizer in optimizers.items():
        for watched in of_optimizer(optimizer, names, name):
            names.setdefault(id(watched.parameter), watched.name)
            found.setdefault(id(watched.parameter), (watched.parameter, Kind.OTHER))
    rows = []
    for key, (parameter, kind) in found.items():
        name = names[key]
        if is_lazy(parameter) or not is_name(name):
            left_out[LAZY if is_lazy(parameter) else _ODD_NAME] += 1
            continue
        group, optimizer_name = groups.get(key, (None, ""))
        known_as = dict.fromkeys(others.get(key, ()))
        tied = tuple(other for other in known_as if other != clean_name(name) and is_name(other))
        rows.append(
            ParameterRow(
                name=name,
                kind=kind,
                shape=tuple(parameter.shape),
                dtype=str(parameter.dtype).removeprefix("torch."),
                device=_word(parameter.device),
                trainable=parameter.requires_grad,
                group=group,
                optimizer=_word(optimizer_name),
                tied=tied[:_MOST_TIED],
            )
        )
    return ModelTable(modules=tuple(modules.values()), parameters=tuple(rows), left_out=dict(+left_out))


def module_names(models: Mapping[str, nn.Module]) -> list[tuple[nn.Module, str]]:
    """The modules of the table with the names that they have there."""
    return [
        (place.module, _module_name(name, place))
        for name, model in models.items()
        for place in places(name, model)
        if not place.is_alias and not is_wrapper(place.module)
    ]


def _module_name(model: str, place: Place) -> str:
    return clean_name(place.name) if place.depth else model or "model"


def _kind(module: nn.Module, local: str, name: str, parameter: Tensor) -> Kind:
    """By the module's class where that is one of torch's; else by its name and the parameter's."""
    if kind_by_name(name) is Kind.ADAPTER:  # which `peft` makes of ordinary layers
        return Kind.ADAPTER
    if local.startswith("bias") or local.endswith("_bias"):
        return Kind.BIAS
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return Kind.EMBEDDING
    if isinstance(module, _NORMALISE):
        return Kind.NORMALISATION
    if isinstance(module, ParametrizationList):
        return Kind.OTHER
    is_flat = is_lazy(parameter) or parameter.dim() < 2
    if isinstance(module, _MULTIPLY):  # `weight_g` is the size that `weight_norm` keeps apart
        return Kind.OTHER if is_flat or local.endswith("_g") else Kind.MATRIX
    kind = kind_by_name(f"{_class_name(type(module))}.{local}")
    return Kind.OTHER if kind is Kind.MATRIX and is_flat else kind


def _class_name(own: type) -> str:
    """Of a class, or of the one that torch derived it from."""
    for prefix in _MADE_CLASSES:
        for base in own.__bases__:
            if own.__name__ == f"{prefix}{base.__name__}":
                return _class_name(base)
    return _word(own.__name__) or "?"


def _word(text: object) -> str:
    return one_line(text)[:_MOST_CHARS]
