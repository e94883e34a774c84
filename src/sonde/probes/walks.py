"""Walking through the modules of a model: whether torch's own ways can be used, and one that needs none of them."""

import graphlib
from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from sonde.core.tags import is_name

_INSIDE_WRAPPERS = frozenset({"_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module", "_forward_module"})
_MOST_CHARS = 200
_MOST_ALIASES = 10_000  # places of modules that stand in several: nested ones multiply


class Place(NamedTuple):
    """A module of a model and where it is."""

    name: str
    module: nn.Module
    depth: int
    """Wrappers do not count."""
    is_alias: bool
    """Whether it was met before, under another name."""

    @property
    def parameters(self) -> Iterator[tuple[str, str, Tensor]]:
        """The module's own: what it calls them, their names in the model, and they themselves."""
        for local, parameter in vars(self.module)["_parameters"].items():
            if parameter is not None:
                yield str(local), _joined(self.name, local), parameter


def places(prefix: str, model: nn.Module) -> Iterator[Place]:
    """A model and its modules, outer ones first, as torch keeps them: no code of the user's is called.

    A module inside itself is not entered again.
    """
    seen: set[int] = set()
    num_aliases = 0

    def walk(name: str, module: nn.Module, depth: int, outer: frozenset[int]) -> Iterator[Place]:
        nonlocal num_aliases
        is_alias = id(module) in seen
        num_aliases += is_alias
        if id(module) in outer or num_aliases > _MOST_ALIASES:
            return
        yield Place(name, module, depth, is_alias)
        seen.add(id(module))
        below = depth + (not is_wrapper(module))
        for local, child in vars(module)["_modules"].items():
            if isinstance(child, nn.Module):
                yield from walk(_joined(name, local), child, below, outer | {id(module)})

    return walk(prefix, model, 0, frozenset())


def _joined(name: str, local: object) -> str:
    return f"{name}.{local}" if name else str(local)


def is_wrapper(module: nn.Module) -> bool:
    """Whether a module is there only to call the one inside."""
    inner = vars(module)["_modules"]
    parallel = isinstance(module, DataParallel | DistributedDataParallel)
    return (parallel and "module" in inner) or not _INSIDE_WRAPPERS.isdisjoint(inner)


def trouble(model: nn.Module) -> str | None:
    """Why the modules of a model cannot be watched; None where they can be.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 2))
        >>> trouble(net) is None
        True
        >>> net.itself = net
        >>> trouble(net)
        'a module lies inside itself'
    """
    try:
        return _trouble(model)
    except Exception as error:  # the user's: the model trains all the same
        return f"its modules cannot be listed: {type(error).__name__}: {error}"[:_MOST_CHARS]


def _trouble(model: nn.Module) -> str | None:
    inside = {}
    for name, module in model.named_modules():
        if name != "" and not is_name(name):
            return "a module is named with control characters or too many of them"
        inside[id(module)] = [id(child) for child in module.children()]
        for _ in module.named_parameters(recurse=False):
            pass
    if any(not isinstance(name, str) for name, _ in model.named_parameters()):
        return "a parameter has a name that is no text"
    for _ in (*model.parameters(), *model.modules(), *model.named_children()):
        pass
    try:
        graphlib.TopologicalSorter(inside).prepare()
    except graphlib.CycleError:
        return "a module lies inside itself"
    return None
