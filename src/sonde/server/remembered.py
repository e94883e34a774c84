"""Answers that are kept for as long as the files that they were read from stay as they are."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar, final

V = TypeVar("V")


@final
class Remembered(Generic[V]):
    """The last answers by key, each with the stamp of its files; the one that was not asked for longest goes first.

    Args:
        most: How many are kept.

    Example:
        >>> kept = Remembered(2)
        >>> kept.get("a", 1, lambda: "old"), kept.get("a", 1, lambda: "new"), kept.get("a", 2, lambda: "new")
        ('old', 'old', 'new')
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Hashable, tuple[Hashable, V]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, stamp: Hashable, make: Callable[[], V]) -> V:
        """What was kept under that stamp, else what is made now; two threads may make the same."""
        with self._lock:
            found = self._kept.get(key)
            if found is not None and found[0] == stamp:
                self._kept.move_to_end(key)
                return found[1]
        value = make()
        self.put(key, stamp, value)
        return value

    def peek(self, key: Hashable, stamp: Hashable) -> V | None:
        """What was kept under that stamp; None where nothing was."""
        with self._lock:
            found = self._kept.get(key)
            return found[1] if found is not None and found[0] == stamp else None

    def put(self, key: Hashable, stamp: Hashable, value: V) -> None:
        """Keep an answer."""
        with self._lock:
            self._kept[key] = stamp, value
            self._kept.move_to_end(key)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
