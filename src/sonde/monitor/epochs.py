"""The epochs of a training, as its loop says when they end."""

import time
from collections import defaultdict


class Epoch:
    """The epoch that is under way."""

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self._began = time.perf_counter()
        self._counts: defaultdict[str, float] = defaultdict(float)

    def count(self, quantity: str, number: float) -> None:
        """Steps, samples and tokens, as they come."""
        self._counts[quantity] += number

    def close(self) -> dict[str, float]:
        """Its row; the next one begins."""
        self.number += 1
        ended = time.perf_counter()
        row = {"epoch": float(self.number), "epoch/time": ended - self._began}
        row.update({f"epoch/{quantity}": number for quantity, number in self._counts.items()})
        self._began, self._counts = ended, defaultdict(float)
        return row
