"""Small pieces of which conditions are made; each is a value that a rule keeps in its state."""

from typing import NamedTuple


class Streak(NamedTuple):
    """How often in a row something was so.

    Example:
        >>> streak = Streak()
        >>> for step, is_so in enumerate((True, False, True, True)):
        ...     streak = streak.after(is_so, step)
        >>> streak
        Streak(num=2, since=2)
    """

    num: int = 0
    since: int = -1
    """The step at which it began; -1 while it is not so."""

    def after(self, is_so: bool, step: int) -> "Streak":
        """With one more look."""
        return Streak(self.num + 1, self.since if self.num else step) if is_so else Streak()
