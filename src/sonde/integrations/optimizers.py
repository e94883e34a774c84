"""The optimisers that a script has made."""

import weakref
from typing import Any, final

from torch.optim import Optimizer

from sonde.integrations import entries
from sonde.integrations.finding import alive, is_cover, kinds_of
from sonde.integrations.listening import Listening


@final
class Optimizers:
    """Notes each optimiser that is made, copied or unpickled: going through all objects of the process takes long.

    Those that were made before are found all the same, by going through all objects: torch leaves a mark on the class
    of each optimiser that it makes.

    Args:
        listening: Through which it is told.
    """

    def __init__(self, listening: Listening) -> None:
        self._is_late = any(getattr(getattr(kind, "step", None), "hooked", False) for kind in kinds_of(Optimizer))
        self._made: list[weakref.ref[Optimizer]] = []
        listening.at(self._on_made, entries.OPTIMIZER_MADE)

    def _on_made(self, optimizer: Any) -> None:
        self._made.append(weakref.ref(optimizer))

    def __call__(self) -> list[Optimizer]:
        """Those that there are, in the order in which they were made; not those that only cover another."""
        if self._is_late:
            return alive(Optimizer)
        self._made = [ref for ref in self._made if ref() is not None]
        found = {id(one): one for ref in self._made if (one := ref()) is not None}  # a copy may be told of twice
        return [one for one in found.values() if not is_cover(one)]
