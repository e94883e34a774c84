"""What each parameter of a run is for: as the model table says, or by its name where a run has none."""

from typing import final

import numpy as np
import numpy.typing as npt

from sonde.core.model_table import ModelTable
from sonde.core.parameter_kinds import Kind, kind_by_name

_MOST_KEPT = 64  # lists of names; the same ones come at every look


@final
class Kinds:
    """Answers what parameters are for.

    A parameter that the table does not know is of no kind that any rule asks for. Only a run without a table, which was
    imported or recorded by an earlier version, is read by the names of its parameters.

    Args:
        model: Of the run; None where it has none.

    Example:
        >>> kinds = Kinds(None)
        >>> kinds.of("wte.weight"), kinds.matrices(("wte.weight", "head.weight", "head.bias"))[0]
        (<Kind.EMBEDDING: 'embedding'>, ('head.weight',))
    """

    def __init__(self, model: ModelTable | None = None) -> None:
        self.model = model
        self._kept: dict[tuple[str, ...], tuple[tuple[str, ...], npt.NDArray[np.intp]]] = {}

    def of(self, name: str) -> Kind:
        """What a parameter is for."""
        if self.model is None:
            return kind_by_name(name)
        row = self.model.by_name.get(name)
        return Kind.OTHER if row is None else row.kind

    def are(self, kind: Kind, names: tuple[str, ...]) -> npt.NDArray[np.bool_]:
        """Which of these parameters are of a kind."""
        return np.fromiter((self.of(name) is kind for name in names), np.bool_, len(names))

    def module(self, name: str) -> str:
        """A module as messages call it: by its name, with its class where the table has it.

        Example:
            >>> from sonde.core.model_table import ModuleRow
            >>> table = ModelTable(modules=(ModuleRow(name="5", type="Linear", depth=1),))
            >>> Kinds(table).module("5"), Kinds(None).module("5")
            ('module `5` (Linear)', 'module `5`')
        """
        kind = None if self.model is None else self.model.types.get(name)
        return f"module `{name}` ({kind})" if kind else f"module `{name}`"

    def num_values(self, name: str) -> int | None:
        """How many values a parameter has; None where that is not known."""
        row = None if self.model is None else self.model.by_name.get(name)
        return None if row is None else row.num_values

    def matrices(self, names: tuple[str, ...]) -> tuple[tuple[str, ...], npt.NDArray[np.intp]]:
        """The weight matrices among parameters, and where they stand in `names`; in the order of the model.

        Without a table, in the order of `names`.
        """
        kept = self._kept.get(names)
        if kept is None:
            places = {} if self.model is None else self.model.places
            found = [place for place, name in enumerate(names) if self.of(name) is Kind.MATRIX]
            found.sort(key=lambda place: places.get(names[place], 0))
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            kept = self._kept[names] = tuple(names[place] for place in found), np.array(found, np.intp)
        return kept
