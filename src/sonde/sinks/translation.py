"""Rows in the words of another tool."""

import time
from collections.abc import Callable, Iterator

from sonde.core.frames import Columns, Float32, Frame, is_missing
from sonde.sinks.names import Name

_MOST_COLUMNS = 512
_BREATH_S = 50e-6  # between rows the training gets the interpreter, for which it would wait up to 5 ms otherwise


class Translation:
    """Gives the measured values of rows, by the names that a tool has for them.

    Args:
        name: What a tag is called there.

    Example:
        >>> import numpy as np
        >>> from sonde.core.frames import MISSING
        >>> from sonde.sinks.names import tensorboard_name
        >>> row = np.array([0.5, MISSING], np.float32)
        >>> list(Translation(tensorboard_name).values(Frame(Columns("step", ("loss", "lr")), 1, 0.0, row)))
        [('Loss/train', 0.5)]
    """

    def __init__(self, name: Callable[[str], Name]) -> None:
        self._name = name
        self._names: dict[Columns, tuple[Name, ...]] = {}

    def values(self, frame: Frame) -> Iterator[tuple[str, float]]:
        """Of a row of plain series."""
        time.sleep(_BREATH_S)
        missing = is_missing(frame.values).tolist()
        for (text, factor), value, absent in zip(self.names(frame), frame.values.tolist(), missing, strict=True):
            if not absent:
                yield text, value * factor

    def counts(self, frame: Frame) -> Iterator[tuple[str, Float32]]:
        """Of a row of histograms."""
        rows = frame.values.reshape(-1, frame.columns.bins)
        for (text, _), row in zip(self.names(frame), rows, strict=True):
            if not is_missing(row).any():
                yield text, row

    def names(self, frame: Frame) -> tuple[Name, ...]:
        """Of a row's tags."""
        found = self._names.get(frame.columns)
        if found is None:
            if len(self._names) >= _MOST_COLUMNS:
                self._names.clear()
            found = self._names[frame.columns] = tuple(map(self._name, frame.columns.tags))
        return found
