"""Numbers, with their units, as people read them: in messages, reports and on terminals."""

import math

_TIMES = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_BYTES = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_YEAR_10000 = 253_402_300_800  # in UTC seconds


def number(value: float, digits: int = 4, *, largest: float = 1e9) -> str:
    """Some significant digits, written out from a ten-thousandth up to a billion; NaN and infinities by name.

    Args:
        value: Any number.
        digits: At least 1.
        largest: From which on it is written with a power of ten; at most 1e15, beyond which digits are invented.

    Example:
        >>> [number(x) for x in (0.281249, 2e-5, 12_071.3, 1.5e9, float("nan"), float("-inf"))]
        ['0.2812', '2e-5', '12,070', '1.5e9', 'NaN', '-infinity']
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "infinity" if value > 0 else "-infinity"
    rounded = float(f"{value:.{digits}g}") + 0.0  # no zero has a sign
    if 1000 <= abs(rounded) < largest:
        return f"{rounded:,.0f}"
    figures, e, power = f"{rounded:.{max(digits, 3)}g}".partition("e")  # with fewer, 100 would be 1e+02
    return f"{figures}e{int(power)}" if e else figures


def amount(value: float) -> str:
    """A number with three digits, for messages.

    Example:
        >>> [amount(x) for x in (978_143.2, 55.36, 0.281249, 2.04e-5, 3.2e12, float("nan"), float("-inf"))]
        ['978,000', '55.4', '0.281', '2.04e-5', '3.2e12', 'NaN', '-infinity']
    """
    return number(value, 3)


def share(value: float) -> str:
    """A share of one, in per cent, with two digits.

    Example:
        >>> share(0.5), share(0.0312), share(1.0), share(0.99961)
        ('50%', '3.1%', '100%', '99.96%')
    """
    if not math.isfinite(value):
        return number(value)
    return f"{100 * value:.2f}%" if 0.99 < value < 1 else f"{number(100 * value, 2)}%"


def count(num: float, noun: str, plural: str = "") -> str:
    """How many there are of something, to the nearest; a number that is NaN or infinite is not known.

    Example:
        >>> count(1, "step"), count(1200.0, "step"), count(2, "loss", "losses"), count(float("inf"), "step")
        ('1 step', '1,200 steps', '2 losses', 'an unknown number of steps')
    """
    several = plural or f"{noun}s"
    if not math.isfinite(num):  # such as a count that overflowed in float16, or in a log of another program
        return f"an unknown number of {several}"
    whole = round(num)
    return f"{whole:,} {noun if whole == 1 else several}"


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
            return share(value)
        case "change":
            digits = f"{100 * value:+,.0f}" if abs(value) >= 0.1 else f"{100 * value:+.2g}"
            return f"{digits}%" if value else "0%"
        case "s":
            return duration(value)
        case "bytes":
            return sized(value)
        case "":
            return number(value)
    singular = unit.removesuffix("s") if value == 1 and "/" not in unit and unit != "times" else unit
    return f"{number(value)} {singular}"


def compact(value: float) -> str:
    """Three significant digits with a letter for thousands, millions and billions, where room is short.

    Example:
        >>> [compact(x) for x in (0.0312, 8.421, 842.0, 999.7, 12_400.0, 3.1e6, 5e12)]
        ['0.0312', '8.42', '842', '1k', '12.4k', '3.1M', '5,000G']
    """
    for scale, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= scale * 0.9995:
            return amount(value / scale) + letter
    return amount(value)


def sized(num_bytes: float) -> str:
    """Bytes in the largest unit that fits, with three digits.

    Example:
        >>> sized(100), sized(3 * 2**30 / 2), sized(4.8e7)
        ('100 bytes', '1.5 GiB', '45.8 MiB')
    """
    scale, unit = next(((scale, unit) for scale, unit in _BYTES if abs(num_bytes) >= scale), (1, "bytes"))
    return f"{amount(num_bytes / scale)} {unit}"


def duration(seconds: float) -> str:
    """A time of any size: three digits below a minute, then the two largest units that are not zero.

    Example:
        >>> [duration(s) for s in (12e-6, 0.0213, 52.04, 3 * 60 + 10, 2 * 3600, 90_061)]
        ['12 µs', '21.3 ms', '52 s', '3 min 10 s', '2 h', '1 d 1 h']
    """
    if not abs(seconds) >= 60:
        scale, unit = next(((s, u) for s, u in ((1.0, "s"), (1e-3, "ms")) if abs(seconds) >= s), (1e-6, "µs"))
        return f"{amount(seconds / scale)} {unit}" if seconds else "0 s"
    left, parts = int(seconds), list[str]()
    for length, unit in _TIMES:
        num, left = divmod(left, length)
        if num or parts:
            parts.append(f"{num} {unit}" if num else "")
    return " ".join(part for part in parts[:2] if part)


def age(seconds: float) -> str:
    """How long ago something was, in the largest unit alone.

    Example:
        >>> age(3 * 60 + 10), age(-1)
        ('3 min ago', 'now')
    """
    return next((f"{int(seconds // length)} {unit} ago" for length, unit in _TIMES if seconds >= length), "now")


def clock(seconds: float) -> str:
    """Hours, minutes and seconds as they tick; days where there are some.

    Example:
        >>> [clock(s) for s in (7.9, 446, 3753, 400_000)]
        ['0:07', '7:26', '1:02:33', '4 d 15:06']
    """
    minutes, second = divmod(max(0, int(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days} d {hour}:{minute:02}"
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"


def moment(time: float) -> str:
    """A UTC time in seconds.

    Example:
        >>> moment(0.0), moment(1e300)
        ('1970-01-01 00:00:00 UTC', 'at no time that a clock can show')
    """
    import numpy as np  # the commands' help must not wait for it

    if not 0 <= time < _YEAR_10000:  # a damaged file
        return "at no time that a clock can show"
    return f"{np.datetime64(int(time), 's')} UTC".replace("T", " ", 1)
