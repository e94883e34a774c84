"""The last number of each of many names."""

from typing import final

import numpy as np

from sonde.core.records import Float64, Int64

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


@final
class Latest:
    """Numbers by name, of which those that come together are put and asked for together.

    Example:
        >>> norms = Latest()
        >>> norms.put(("a", "b"), np.array([1.0, 2.0]))
        >>> norms.put(("b",), np.array([3.0]))
        >>> norms.get(("b", "c")).tolist(), norms.values.tolist()
        ([3.0, 0.0], [1.0, 3.0])
    """

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()
        """In the order in which they first came."""
        self._values: Float64 = np.zeros(1)  # the last one stands for all that never came
        self._lookup = Lookup()

    @property
    def values(self) -> Float64:
        """Of all names."""
        return self._values[:-1]

    def put(self, names: tuple[str, ...], values: Float64) -> None:
        """These are the last ones from now on."""
        at = self._lookup(names, self.names)
        if len(at) and at.min() < 0:
            new = tuple(name for name, place in zip(names, at.tolist(), strict=True) if place < 0)
            self.names += new
            self._values = np.concatenate([self.values, np.zeros(len(new) + 1)])
            at = self._lookup(names, self.names)
        self._values[at] = values

    def get(self, names: tuple[str, ...]) -> Float64:
        """The last ones; 0 where there was none."""
        return self._values[self._lookup(names, self.names)]

    def covers(self, other: "Latest") -> bool:
        """Whether it has all names of another."""
        at = self._lookup(other.names, self.names)
        return not len(at) or bool(at.min() >= 0)
