"""Where names stand among others."""

from typing import final

import numpy as np

from sonde.core.records import Int64

_MOST_KNOWN = 256  # which parameters come together may change at every step (experts)


@final
class Lookup:
    """Where names stand among others, worked out once for each pair of tuples.

    Example:
        >>> Lookup()(("b", "c"), ("a", "b")).tolist()  # the second is not there
        [1, -1]
    """

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[str, ...], tuple[str, ...]], Int64] = {}

    def __call__(self, names: tuple[str, ...], among: tuple[str, ...]) -> Int64:
        found = self._known.get((names, among))
        if found is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            place = {name: i for i, name in enumerate(among)}
            found = self._known[names, among] = np.fromiter((place.get(n, -1) for n in names), np.int64, len(names))
        return found
