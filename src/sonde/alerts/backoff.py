"""How long to wait before the next attempt."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Backoff:
    """Twice as long after every failure, less a random share, so that many trainings do not come back at once.

    After the n-th failure in a row, n from 0: min(`first_s`·2ⁿ, `most_s`)·(1 − `jitter`·u), u drawn from [0, 1).

    Args:
        first_s: After the first failure.
        most_s: The longest.
        jitter: In [0, 1]; larger spreads more.

    Example:
        >>> [Backoff(first_s=1, most_s=60, jitter=0.5).delay_s(n, 0.0) for n in (0, 1, 5, 6, 10_000)]
        [1.0, 2.0, 32.0, 60.0, 60.0]
        >>> Backoff(first_s=1, jitter=0.5).delay_s(2, 0.5)
        3.0
    """

    first_s: float = 1.0
    most_s: float = 300.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.first_s <= self.most_s:
            raise ValueError(f"`Backoff(first_s=...)` must be in (0, {self.most_s}], got {self.first_s}.")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"`Backoff(jitter=...)` must be in [0, 1], got {self.jitter}.")

    def delay_s(self, num_failures: int, u: float) -> float:
        """Seconds to wait; `u` is drawn by the caller."""
        doubled = self.first_s * 2.0 ** min(num_failures, 60)  # 2^10000 is no float
        return min(doubled, self.most_s) * (1 - self.jitter * u)
