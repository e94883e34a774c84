"""Bursts of detailed measuring that findings ask for."""

_NUM_STEPS = 5
_LEAST_BETWEEN = 500


class Bursts:
    """Asked for by any thread, begun by the training's; rare, whatever is found.

    Example:
        >>> bursts = Bursts()
        >>> bursts.ask()
        >>> bursts.asked(10), bursts.asked(11)
        (5, 0)
        >>> bursts.ask()
        >>> bursts.asked(100), bursts.asked(510)
        (0, 5)
    """

    def __init__(self) -> None:
        self._wanted = False
        self._next = 0

    def ask(self) -> None:
        """Somebody has become suspicious."""
        self._wanted = True

    def asked(self, iteration: int) -> int:
        """How many steps are to be measured in full from here on: 0 where none are, or there was a burst lately."""
        if not self._wanted or iteration < self._next:
            return 0
        self._wanted, self._next = False, iteration + _LEAST_BETWEEN
        return _NUM_STEPS
