"""Whether the modules of a model can be walked, as all probes of modules do."""

import graphlib

from torch import nn

from sonde.core.tags import is_name

_MOST_CHARS = 200


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
