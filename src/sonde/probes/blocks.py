"""The blocks of a model: what is repeated in depth, found from its modules alone."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.nn.parameter import is_lazy

from sonde.core.tags import clean_name

# Names that no user gives to a module of his own; `module` may be one, so there the wrapper's class decides.
_INSIDE_WRAPPERS = ("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module", "_forward_module")


class Leaf(NamedTuple):
    """A module with none inside, and the name that stands behind `@` in its tags."""

    name: str
    module: nn.Module


class Block(NamedTuple):
    """A part of a model that is one of several alike, with the leaf modules inside."""

    name: str
    module: nn.Module
    leaves: tuple[Leaf, ...]


def blocks_of(models: Mapping[str, nn.Module]) -> list[Block]:
    """The blocks of models in the order in which the modules were made, which is that of depth in nearly all of them.

    Blocks are those members of a `ModuleList` or `Sequential` that have parameters and modules of their own and of
    whose class there are at least two: the layers of a transformer, residual blocks. A `Sequential` among such members
    is not a block itself where it has blocks inside. What lies inside a block (experts, heads) is not searched. An
    encoder and a decoder have each their own. Wrappers (`DistributedDataParallel`, `torch.compile`, activation
    checkpointing, FSDP1) are looked through: the block is what they wrap.

    In a model without any, the leaf modules with a weight of two or more dimensions are the blocks.

    A module that stands in two places counts once, at the first. Whether the members of a list follow each other or lie
    side by side (the heads of a multi-task model) cannot be told from modules; they are taken to follow.

    Args:
        models: By name; a name that is not empty stands before the names of the model's modules.

    Example:
        >>> stack = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(2)))
        >>> net = nn.Sequential(nn.Linear(2, 4), stack, nn.Linear(4, 1))
        >>> for block in blocks_of({"": net}):
        ...     print(block.name, [leaf.name for leaf in block.leaves])
        1.0 ['1.0.0', '1.0.1']
        1.1 ['1.1.0', '1.1.1']
    """
    names = _names(models)
    seen: set[int] = set()
    blocks = []
    for model in models.values():
        found = list(_repeated(_unwrapped(model))) or [m for m in _leaf_modules(model) if _has_matrix(m)]
        for module in found:
            if id(module) not in seen:
                inside = list(_leaf_modules(module))
                leaves = tuple(Leaf(names[id(leaf)], leaf) for leaf in inside if id(leaf) not in seen)
                seen.update(map(id, inside), [id(module)])
                blocks.append(Block(names[id(module)], module, leaves))
    return blocks


def leaves_outside(models: Mapping[str, nn.Module], blocks: Sequence[Block], most: int = 16) -> list[tuple[Leaf, ...]]:
    """The leaf modules of models that lie in no block, in their order, in groups of at most `most`.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
        >>> [[leaf.name for leaf in group] for group in leaves_outside({"": net}, blocks_of({"": net}))]
        [['1']]
    """
    names = _names(models)
    inside = {id(leaf.module) for block in blocks for leaf in block.leaves}
    found = {id(leaf): leaf for model in models.values() for leaf in _leaf_modules(model) if id(leaf) not in inside}
    leaves = [Leaf(names[key], leaf) for key, leaf in found.items()]
    return [tuple(leaves[i : i + most]) for i in range(0, len(leaves), most)]


def _repeated(module: nn.Module) -> Iterator[nn.Module]:
    members = [_unwrapped(child) for child in module.children()]
    times: Counter[type[nn.Module]] = Counter()
    if isinstance(module, nn.Sequential | nn.ModuleList):
        times.update(type(member) for member in {id(m): m for m in members}.values() if _may_be_block(member))
    for member in members:
        if times[type(member)] < 2 or not _may_be_block(member):
            yield from _repeated(member)
        elif isinstance(member, nn.Sequential | nn.ModuleList):
            inside = list(_repeated(member))
            # A list has no forward that could be hooked.
            yield from inside or ([member] if isinstance(member, nn.Sequential) else ())
        else:
            yield member


def _may_be_block(module: nn.Module) -> bool:
    return not is_leaf(module) and next(module.parameters(), None) is not None


def _leaf_modules(module: nn.Module) -> Iterator[nn.Module]:
    """The leaf modules in order, each once."""
    skipped: set[int] = set()  # what belongs to a leaf
    for one in module.modules():
        if id(one) not in skipped and is_leaf(one):
            skipped.update(map(id, one.modules()))
            if not isinstance(one, nn.ModuleList | nn.ModuleDict | nn.ParameterList | nn.ParameterDict | nn.Sequential):
                yield one


def is_leaf(module: nn.Module) -> bool:
    """Whether a module has none inside that is called by itself.

    Attention uses the weights of its projection without calling it, a parametrisation belongs to what it makes, and
    lists of parameters are never called.
    """
    return isinstance(module, nn.MultiheadAttention) or all(
        name == "parametrizations" or isinstance(child, nn.ParameterList | nn.ParameterDict)
        for name, child in module.named_children()
    )


def _has_matrix(module: nn.Module) -> bool:
    # A lazy module will have its matrix at its first call, unless it is to normalise.
    return any(
        not isinstance(module, _NormBase) if is_lazy(parameter) else parameter.dim() >= 2
        for parameter in module.parameters()
    )


def _unwrapped(module: nn.Module) -> nn.Module:
    while (inner := _wrapped_by(module)) is not None:
        module = inner
    return module


def _wrapped_by(module: nn.Module) -> nn.Module | None:
    names = (*_INSIDE_WRAPPERS, *(("module",) if isinstance(module, DataParallel | DistributedDataParallel) else ()))
    return next((child for name, child in module.named_children() if name in names), None)


def _names(models: Mapping[str, nn.Module]) -> dict[int, str]:
    """The name of every module but wrappers, by its `id`; where leaving those out makes two alike, both stay whole."""
    full: dict[int, str] = {}
    for prefix, model in models.items():
        full.setdefault(id(_unwrapped(model)), prefix or "model")
        for name, module in model.named_modules(prefix=prefix):
            if _wrapped_by(module) is None:
                full.setdefault(id(module), name)
    times = Counter(map(clean_name, full.values()))
    return {key: clean if times[clean := clean_name(name)] == 1 else name for key, name in full.items()}
