"""Numbers, times and durations as people read them."""

import math
from datetime import UTC, datetime

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def number(value: float) -> str:
    """Four significant digits; NaN and infinities by name.

    Example:
        >>> [number(x) for x in (0.281249, 2e-5, 1207.0, float("nan"), float("-inf"))]
        ['0.2812', '2e-05', '1207', 'NaN', '-inf']
    """
    return "NaN" if math.isnan(value) else f"{value:.4g}"


def duration(seconds: float) -> str:
    """The two largest units that are not zero.

    Example:
        >>> [duration(s) for s in (0.4, 52, 3 * 60 + 10, 2 * 3600, 90_061)]
        ['0 s', '52 s', '3 min 10 s', '2 h', '1 d 1 h']
    """
    left = max(0, int(seconds))
    parts: list[str] = []
    for size, unit in _UNITS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
    return " ".join(part for part in parts[:2] if part) or "0 s"


def age(seconds: float) -> str:
    """The largest unit alone.

    Example:
        >>> age(3 * 60 + 10), age(-1)
        ('3 min ago', 'now')
    """
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return "now"


def moment(time: float) -> str:
    """A UTC time in seconds, on the reader's clock and to the minute.

    Example:
        >>> moment(1e300)
        'at no time that a clock can show'
    """
    try:
        return f"{datetime.fromtimestamp(time, UTC).astimezone():%Y-%m-%d %H:%M}"
    except (OverflowError, OSError, ValueError):  # a damaged file
        return "at no time that a clock can show"
