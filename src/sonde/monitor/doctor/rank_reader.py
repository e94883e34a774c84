"""What the other ranks of a training have recorded by now, for the doctor of the first."""

import time
from collections.abc import Iterable

from sonde.core.errors import StoreError
from sonde.diagnosis.across import ACROSS_RANKS, Compared
from sonde.store.between_ranks import between_ranks
from sonde.store.reader import Run

_INTERVAL_S = 5.0
_LARGEST_SHARE = 0.02


class RankReader:
    """Reads what all ranks have recorded and tells the rules that compare them.

    It reads at most every 5 seconds, and so rarely that reading takes 2% of the time. Ranks that record where this one
    cannot read, as on another host's disk, are not compared.
    """

    def __init__(self) -> None:
        self._next_s = time.monotonic() + _INTERVAL_S

    def tell(self, rules: Iterable[Compared], folder: str, *, at_once: bool = False) -> None:
        """Tell the rules what the ranks have recorded, if it is time to.

        Args:
            rules: Those that compare ranks.
            folder: Of the first rank's run.
            at_once: Whether to read in any case.
        """
        began = time.monotonic()
        if began < self._next_s and not at_once:
            return
        try:
            ranks = between_ranks(Run(folder), ACROSS_RANKS)
        except StoreError:  # a rank that is about to write its first table; there is a next time
            ranks = {}
        for rule in rules if ranks else ():
            rule.tell(ranks)
        self._next_s = began + max(_INTERVAL_S, (time.monotonic() - began) / _LARGEST_SHARE)
