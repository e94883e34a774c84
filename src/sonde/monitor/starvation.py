"""How long the training's thread was ready to run and had no processor: other work on the machine took it."""

import contextlib
import os

_SOURCE = "/proc/thread-self/schedstat"


class Starvation:
    """Asks Linux about the thread that makes it; elsewhere nothing is known.

    A read costs about a microsecond.
    """

    def __init__(self) -> None:
        self._file: int | None = None
        with contextlib.suppress(OSError):
            self._file = os.open(_SOURCE, os.O_RDONLY | os.O_CLOEXEC)
        self._last = self._total()

    def take(self) -> float | None:
        """Seconds since the last call; None where it is not known."""
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
