"""How long the training's thread was ready to run and had no processor: other work on the machine took it."""

import contextlib
import math
import os

_SOURCE = "/proc/thread-self/schedstat"
_SHORT_S = 2e-3


class Starvation:
    """Asks Linux about the thread that makes it; elsewhere nothing is known.

    A read costs 3 µs and more: of steps that are very short the last of several has what all of them waited.
    """

    def __init__(self) -> None:
        self._file: int | None = None
        self._passed_s = 0.0
        """Since the last read."""
        with contextlib.suppress(OSError):
            self._file = os.open(_SOURCE, os.O_RDONLY | os.O_CLOEXEC)
        self._last = self._total()

    def take(self, passed_s: float = math.inf) -> float | None:
        """Seconds since the last call, which was so long ago; None where it is not known."""
        self._passed_s += passed_s
        if self._passed_s < _SHORT_S and self._last is not None:
            return 0.0
        self._passed_s = 0.0
        total = self._total()
        if total is None or self._last is None:
            return None
        waited, self._last = total - self._last, total
        return waited

    def _total(self) -> float | None:
        if self._file is None:
            return None
        try:
            return int(os.pread(self._file, 96, 0).split()[1]) / 1e9
        except (OSError, IndexError, ValueError):  # a kernel without these books
            self.close()
            return None

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
