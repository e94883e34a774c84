"""Sweeps of detailed measuring that findings ask for."""

_NUM_STEPS = 20  # all at once would make some steps twice as long, and the next ones tell the same
_LEAST_BETWEEN = 500


class Sweeps:
    """Asked for by any thread, begun by the training's; rare, whatever is found.

    Example:
        >>> sweeps = Sweeps()
        >>> sweeps.ask()
        >>> sweeps.asked(10), sweeps.asked(11)
        (20, 0)
        >>> sweeps.ask()
        >>> sweeps.asked(100), sweeps.asked(510)
        (0, 20)
    """

    def __init__(self) -> None:
        self.is_wanted = False
        self._next = 0
        self.are_allowed = True

    def ask(self) -> None:
        """Somebody has become suspicious."""
        self.is_wanted = self.are_allowed

    def asked(self, iteration: int) -> int:
        """Within how many steps everything is to be measured once: 0 where nothing is, or there was a sweep lately."""
        if not self.is_wanted or iteration < self._next:
            return 0
        self.is_wanted, self._next = False, iteration + _LEAST_BETWEEN
        return _NUM_STEPS
