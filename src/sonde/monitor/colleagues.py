"""What the other ranks of a training have recorded by now, for the doctor of the first."""

import time
from collections.abc import Iterable

from sonde.core.errors import StoreError
from sonde.diagnosis.across import ACROSS_RANKS, Compared
from sonde.store.between_ranks import between_ranks
from sonde.store.reader import Run

_INTERVAL_S = 5.0
_LARGEST_SHARE = 0.02


class Colleagues:
    """Reads what all ranks have recorded and tells the rules that compare them.

    Now and then only: at most every 5 seconds, and so rarely that it takes 2% of the time. Ranks that record where this
    one cannot read, as on another host's disk, are not compared.

    Args:
        folder: Of the first rank's run.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._next_s = time.monotonic() + _INTERVAL_S

    def tell(self, rules: Iterable[Compared], *, at_once: bool = False) -> None:
        """Tell the rules, where it is time to."""
        began = time.monotonic()
        if began < self._next_s and not at_once:
            return
        try:
            ranks = between_ranks(Run(self.folder), ACROSS_RANKS)
        except StoreError:  # a rank that is about to write its first table; there is a next time
            ranks = {}
        if ranks:
            for rule in rules:
                rule.tell(ranks)
        took_s = time.monotonic() - began
        self._next_s = began + max(_INTERVAL_S, took_s / _LARGEST_SHARE)
