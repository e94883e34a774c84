"""Hours in which nobody wants to be woken."""

import datetime
import re
import zoneinfo
from dataclasses import dataclass

_SPAN = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)\s*[-–]\s*([01]?\d|2[0-3]):([0-5]\d)")


@dataclass(frozen=True, kw_only=True, slots=True)
class QuietHours:
    """A daily span of local time, summer time and all.

    Args:
        start: When it begins, local time.
        end: When it is over; before `start` where the span goes over midnight.
        zone: The time zone by name, such as "Europe/Berlin".
        critical_breaks_through: Whether critical findings are told all the same.

    Example:
        >>> night = QuietHours.parse("22:00-07:00", zone="Europe/Berlin")
        >>> noon_s = 1_700_046_000.0  # 2023-11-15 12:00 in Berlin
        >>> night.holds(noon_s), night.holds(noon_s + 12 * 3600), night.end_s(noon_s + 12 * 3600) - noon_s == 19 * 3600
        (False, True, True)
    """

    start: datetime.time
    end: datetime.time
    zone: str = "UTC"
    critical_breaks_through: bool = True

    def __post_init__(self) -> None:
        if self.start == self.end:
            raise ValueError(f"quiet hours must end at another time than they start at, got {self.start:%H:%M} twice.")
        try:
            zoneinfo.ZoneInfo(self.zone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ValueError(
                f"there is no time zone {self.zone!r}; name one as in Europe/Berlin or UTC "
                "(on a machine without a list of them: pip install tzdata)."
            ) from error

    @classmethod
    def parse(cls, span: str, *, zone: str = "UTC", critical_breaks_through: bool = True) -> "QuietHours":
        """The hours that "22:00-07:00" says."""
        match = _SPAN.fullmatch(span.strip())
        if match is None:
            raise ValueError(f"quiet hours must be written as 22:00-07:00, got {span!r}.")
        start_hour, start_minute, end_hour, end_minute = map(int, match.groups())
        return cls(
            start=datetime.time(start_hour, start_minute),
            end=datetime.time(end_hour, end_minute),
            zone=zone,
            critical_breaks_through=critical_breaks_through,
        )

    def holds(self, now_s: float) -> bool:
        """Whether they are on, at these seconds since 1970."""
        time = self._local(now_s).time()
        if self.start < self.end:
            return self.start <= time < self.end
        return time >= self.start or time < self.end

    def end_s(self, now_s: float) -> float:
        """The next time at which they are over, after `now_s`."""
        local = self._local(now_s)
        end = local.replace(hour=self.end.hour, minute=self.end.minute, second=0, microsecond=0)
        if end <= local:
            end += datetime.timedelta(days=1)
        # Where the clock is put forward over that very minute it is up to an hour late; put back, not in the future.
        return max(end.timestamp(), now_s + 1.0)

    def _local(self, now_s: float) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(now_s, zoneinfo.ZoneInfo(self.zone))
