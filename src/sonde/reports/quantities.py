"""Numbers, with their units, as people read them."""

import math
from datetime import UTC, datetime

_TIMES = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_BYTES = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def number(value: float) -> str:
    """Four significant digits; NaN and infinities by name.

    Example:
        >>> [number(x) for x in (0.281249, 2e-5, 12071.0, 1.5e9, float("nan"), float("-inf"))]
        ['0.2812', '2e-5', '12,071', '1.5e9', 'NaN', '-infinite']
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}infinite"
    if 1000 <= abs(value) < 1e6:
        return f"{value:,.0f}"
    digits, e, power = f"{value:.4g}".partition("e")
    return f"{digits}e{int(power)}" if e else digits


def quantity(value: float, unit: str) -> str:
    """A number with its unit.

    "share" is written in per cent, "change" too, with its sign; "s" and "bytes" in the size that fits.

    Example:
        >>> quantity(0.0213, "s"), quantity(3 * 2**30, "bytes"), quantity(-0.031, "change"), quantity(2, "jumps")
        ('21.3 ms', '3 GiB', '-3.1%', '2 jumps')
        >>> quantity(0.0004, "share"), quantity(1.0, "jumps"), quantity(31.5, "samples/s")
        ('0.04%', '1 jump', '31.5 samples/s')
    """
    if not math.isfinite(value):
        return number(value)
    match unit:
        case "share":
            return f"{number(float(f'{100 * value:.3g}'))}%"
        case "change":
            digits = f"{100 * value:+,.0f}" if abs(value) >= 0.1 else f"{100 * value:+.2g}"
            return f"{digits}%" if value else "0%"
        case "s":
            return seconds(value)
        case "bytes":
            size, name = next(((size, name) for size, name in _BYTES if abs(value) >= size), (1, "bytes"))
            return f"{number(float(f'{value / size:.3g}'))} {name}"
        case "":
            return number(value)
    singular = unit.removesuffix("s") if value == 1 and "/" not in unit and unit != "times" else unit
    return f"{number(value)} {singular}"


def seconds(value: float) -> str:
    """A time of any size, three digits below a minute.

    Example:
        >>> [seconds(s) for s in (12e-6, 0.0213, 52.04, 3 * 60 + 10, 90_061)]
        ['12 µs', '21.3 ms', '52 s', '3 min 10 s', '1 d 1 h']
    """
    if abs(value) < 60:
        size, unit = next(((s, u) for s, u in ((1.0, "s"), (1e-3, "ms")) if abs(value) >= s), (1e-6, "µs"))
        return f"{value / size:.3g} {unit}"
    left, parts = int(value), list[str]()
    for size, unit in _TIMES:
        count, left = divmod(left, int(size))
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
    return " ".join(part for part in parts[:2] if part)


def moment(time: float) -> str:
    """A UTC time in seconds, to the minute.

    Example:
        >>> moment(0.0), moment(1e300)
        ('1970-01-01 00:00 UTC', 'at no time that a clock can show')
    """
    try:
        return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M} UTC"
    except (OverflowError, OSError, ValueError):  # a damaged file
        return "at no time that a clock can show"


def count(num: int, noun: str) -> str:
    """How many there are of something.

    Example:
        >>> count(1, "step"), count(1200, "step")
        ('1 step', '1,200 steps')
    """
    return f"{num:,} {noun}{'' if num == 1 else 's'}"
