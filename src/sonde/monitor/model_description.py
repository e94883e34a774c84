"""What a run says of its model: the table as it is, and the shapes that were seen since."""

import threading
from collections.abc import Callable, Mapping

from torch import nn
from torch.optim import Optimizer

from sonde.core.model_table import ModelTable, Passed
from sonde.probes.model_table import model_table


class ModelDescription:
    """Tells the model table, and again where it has changed; parameters come on one thread, shapes on another.

    Args:
        models: By name.
        optimizers: By name.
        describe: Given the table.
    """

    def __init__(
        self,
        models: Mapping[str, nn.Module],
        optimizers: Mapping[str, Optimizer],
        describe: Callable[[ModelTable], None],
    ) -> None:
        self._models, self._optimizers, self._describe = models, optimizers, describe
        self._lock = threading.Lock()
        self._table = ModelTable()
        self._shapes: Mapping[str, Passed] = {}

    def refresh(self) -> None:
        """Parameters have come, or have got their shape."""
        table = model_table(self._models, self._optimizers)
        with self._lock:
            self._table = table
            self._describe(table.with_shapes(self._shapes))

    def add_shapes(self, shapes: Mapping[str, Passed]) -> None:
        """What modules were given and gave is known, by their names."""
        with self._lock:
            self._shapes = shapes
            self._describe(self._table.with_shapes(shapes))
