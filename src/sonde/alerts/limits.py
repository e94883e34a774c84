"""Token buckets: so many at once, then one in a while."""

from dataclasses import dataclass
from typing import NamedTuple

_ALMOST = 1e-6  # tokens: a clock of seconds since 1970 has no finer grain


class Bucket(NamedTuple):
    """What is left of a limit."""

    tokens: float
    at_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    """At most `burst` + T / `refill_s` messages in any T seconds.

    Args:
        burst: How many may go out at once, at least 1.
        refill_s: Seconds until there is room for another; larger means fewer messages.

    Example:
        >>> limit = Limit(burst=2, refill_s=60)
        >>> bucket = limit.spend(limit.spend(limit.init(0.0), 0.0), 0.0)
        >>> limit.allows(bucket, 59.0), limit.allows(bucket, 60.0), limit.ready_s(bucket)
        (False, True, 60.0)
    """

    burst: int = 5
    refill_s: float = 600.0

    def __post_init__(self) -> None:
        if self.burst < 1:
            raise ValueError(f"`Limit(burst=...)` must be at least 1, got {self.burst}.")
        if not self.refill_s > 0:
            raise ValueError(f"`Limit(refill_s=...)` must be above 0 seconds, got {self.refill_s}.")

    def init(self, now_s: float) -> Bucket:
        """A full one."""
        return Bucket(float(self.burst), now_s)

    def allows(self, bucket: Bucket, now_s: float) -> bool:
        """Whether there is room for a message."""
        return self._filled(bucket, now_s).tokens >= 1 - _ALMOST

    def spend(self, bucket: Bucket, now_s: float) -> Bucket:
        """After a message."""
        filled = self._filled(bucket, now_s)
        return filled._replace(tokens=filled.tokens - 1)

    def ready_s(self, bucket: Bucket) -> float:
        """When there is room again."""
        return bucket.at_s + max(0.0, 1 - bucket.tokens) * self.refill_s

    def _filled(self, bucket: Bucket, now_s: float) -> Bucket:
        elapsed_s = max(0.0, now_s - bucket.at_s)  # a clock may be set back
        return Bucket(min(float(self.burst), bucket.tokens + elapsed_s / self.refill_s), now_s)
