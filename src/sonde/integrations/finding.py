"""Which models a training is about, and what they are called: told from its optimisers and what is alive."""

import gc
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer

_OURS = (str(Path(__file__).parents[1]) + os.sep, str(Path(torch.__file__).parent) + os.sep)
_MOST_FRAMES = 200
_FEW_CLASSES = 30
_IS_USERS: dict[str, bool] = {}
"""By the name of a file: asked at every step."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


class Found(NamedTuple):
    """What is to be watched, by name; a single one has the empty name."""

    models: dict[str, nn.Module]
    optimizers: dict[str, Optimizer]


def alive(kind: type[Any]) -> list[Any]:
    """All objects of a class that the process has. Takes some hundredths of a second: not for every step."""
    wanted = kinds_of(kind)
    # An object refers to its class. Asking who does takes less than going through all objects, unless classes are many.
    things = gc.get_referrers(*wanted) if len(wanted) <= _FEW_CLASSES else gc.get_objects()
    # Not `isinstance`, which asks objects for their `__class__`: some import half a library to answer.
    return [thing for thing in things if type(thing) in wanted and not is_cover(thing)]


def kinds_of(kind: type[Any]) -> set[type[Any]]:
    """A class and all classes below it."""
    found: set[type[Any]] = set()
    new = [kind]
    while new:
        one = new.pop()
        if one not in found:
            found.add(one)
            new += type.__subclasses__(one)
    return found


def is_cover(thing: Any) -> bool:
    """Whether it is a cover of an optimiser, which alone makes steps (Accelerate, sharpness-aware ones)."""
    return isinstance(thing, Optimizer) and any(
        isinstance(inner, Optimizer) and inner is not thing for inner in vars(thing).values()
    )


def find(
    called: Sequence[nn.Module],
    optimizers: Sequence[Optimizer],
    modules: Callable[[], Sequence[nn.Module]],
    name: Callable[[Any], str | None],
) -> Found:
    """The models that some optimisers train.

    The model of an optimiser is the smallest module that holds all the parameters that it trains, one that the script
    itself called before others; where there is none such, they are all modules that hold some of them and lie in no
    other. Optimisers without a parameter of any module are left out.

    Args:
        called: Modules that were called by the script itself, not by another module, in the order of their calls.
        optimizers: Those to consider.
        modules: All that there are; asked where those that were called are not enough.
        name: What the script calls a thing, where that is known.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
        >>> adam = torch.optim.Adam(net.parameters())
        >>> found = find([net[0], net[1]], [adam], lambda: [*net.modules()], lambda _: None)
        >>> found.models[""] is net, found.optimizers[""] is adam
        (True, True)
    """
    held = {id(module): frozenset(map(id, module.parameters())) for module in called}
    everything: list[nn.Module] = []
    chosen: dict[int, nn.Module] = {}
    of_optimizer: dict[int, list[int]] = {}
    for optimizer in optimizers:
        trained = {id(p) for group in optimizer.param_groups for p in group["params"] if p.requires_grad}
        candidates = [module for module in called if held[id(module)] & trained]
        if not any(held[id(module)] >= trained for module in candidates):
            if not everything:
                # Wrappers (`torch.compile`, data-parallel) before what they wrap: they are what is called.
                rest = {id(m): m for m in modules() if id(m) not in held}
                everything = sorted(rest.values(), key=lambda module: -sum(1 for _ in module.modules()))
                held.update((id(m), frozenset(map(id, m.parameters()))) for m in everything)
            candidates += [module for module in everything if held[id(module)] & trained]
        mine = _covering(candidates, held, trained)
        for module in mine:
            chosen.setdefault(id(module), module)
        of_optimizer[id(optimizer)] = [id(module) for module in mine]
    kept = _outermost(list(chosen.values()), held)
    watched = [o for o in optimizers if of_optimizer[id(o)]]
    models = {"": kept[0]} if len(kept) == 1 else _named(kept, name)
    if len(watched) == 1:
        return Found(models, {"": watched[0]})
    names_of_models = {id(model): key for key, model in models.items()}
    owners = [
        {names_of_models[i] for i in of_optimizer[id(optimizer)] if names_of_models.get(i)} for optimizer in watched
    ]
    alone = [owner for owner in owners if len(owner) == 1]

    def name_of(optimizer: Any) -> str | None:
        owner = owners[next(i for i, one in enumerate(watched) if one is optimizer)]
        if len(owner) == 1 and alone.count(owner) == 1:
            return next(iter(owner))  # a model and its optimiser have one name
        return name(optimizer)

    return Found(models, _named(watched, name_of))


def _covering(candidates: Sequence[nn.Module], held: dict[int, frozenset[int]], trained: set[int]) -> list[nn.Module]:
    known = set().union(*(held[id(module)] for module in candidates)) & trained if candidates else set()
    if not known:
        return []
    whole = [module for module in candidates if held[id(module)] >= known]
    if whole:
        fewest = min(len(held[id(module)]) for module in whole)
        return [next(module for module in whole if len(held[id(module)]) == fewest)]
    return _outermost(candidates, held)


def _outermost(modules: Sequence[nn.Module], held: dict[int, frozenset[int]]) -> list[nn.Module]:
    inside = {id(part) for module in modules for part in module.modules() if part is not module}
    return [module for module in modules if id(module) not in inside and held[id(module)]]


def _named(things: Sequence[Any], name: Callable[[Any], str | None]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    names = [name(thing) for thing in things]
    if None in names:  # some are in a list, and a name of another may be that of a loop's variable
        names = [type(thing).__name__.lower() for thing in things]
    for thing, given in zip(things, names, strict=True):
        word = given if given is not None and _NAME.fullmatch(given) else "model"
        unique, number = word, 2
        while unique in found:
            unique, number = f"{word}{number}", number + 1
        found[unique] = thing
    return found


def user_frames() -> Iterator[Any]:
    """The frames of this thread outside torch and Sonde, the innermost first."""
    frame = sys._getframe(1)
    for _ in range(_MOST_FRAMES):
        file = frame.f_code.co_filename
        is_users = _IS_USERS.get(file)
        if is_users is None:
            is_users = _IS_USERS[file] = not file.startswith((*_OURS, "<frozen"))
        if is_users:
            yield frame
        if frame.f_back is None:
            return
        frame = frame.f_back


def name_in_script(thing: Any) -> str | None:
    """What the code that is being run calls an object: a variable, or an attribute of `self`."""
    for frame in user_frames():
        variables = frame.f_locals
        if (found := _key_of(thing, variables.items())) is not None:
            return found
        owner = variables.get("self")
        if owner is not None and (found := _key_of(thing, getattr(owner, "__dict__", {}).items())) is not None:
            return found
    return None


def _key_of(thing: Any, items: Iterable[tuple[str, Any]]) -> str | None:
    return next((key for key, value in list(items) if value is thing and not key.startswith("_")), None)
