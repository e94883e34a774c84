"""Numbers, rates, sizes and durations in the few characters that a terminal has room for."""

import math
import re

_EXPONENT = re.compile(r"e\+?(-?)0*(\d)")
_GIB = 1 << 30


def number(value: float) -> str:
    """Four significant digits; NaN and infinities by name.

    Example:
        >>> [number(x) for x in (0.281249, 2e-5, 1207.0, 3.2e9, float("nan"), float("-inf"))]
        ['0.2812', '2e-5', '1207', '3.2e9', 'NaN', '-inf']
    """
    return "NaN" if math.isnan(value) else _EXPONENT.sub(r"e\1\2", f"{value:.4g}")


def count(value: float) -> str:
    """Three significant digits with a letter for thousands, millions and billions.

    Example:
        >>> [count(x) for x in (0.0312, 8.421, 842.0, 999.7, 12_400.0, 3.1e6, 5e12)]
        ['0.0312', '8.42', '842', '1k', '12.4k', '3.1M', '5000G']
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size * 0.9995:
            scaled = value / size
            return (f"{scaled:.3g}" if scaled < 999.5 else f"{scaled:.0f}") + letter
    return number(float(f"{value:.3g}"))


def gibibytes(num_bytes: float) -> str:
    """Without the unit.

    Example:
        >>> gibibytes(13_019_113_063), gibibytes(85_520_809_984), gibibytes(312e9)
        ('12.1', '79.6', '291')
    """
    size = num_bytes / _GIB
    return f"{size:.0f}" if size >= 99.95 else f"{size:.1f}" if size >= 9.995 else f"{size:.2f}"


def clock(seconds: float) -> str:
    """Hours, minutes and seconds; days where there are some.

    Example:
        >>> [clock(s) for s in (7.9, 446, 3753, 400_000)]
        ['0:07', '7:26', '1:02:33', '4 d 15:06']
    """
    whole = max(0, int(seconds))
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days} d {hour}:{minute:02}"
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"
