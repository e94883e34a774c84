"""Numbers as people read them, for messages."""

import math


def amount(value: float) -> str:
    """Three significant digits, written out from a ten-thousandth up to a billion; NaN and infinities by name.

    Example:
        >>> [amount(x) for x in (978_143.2, 55.36, 0.281249, 2.04e-5, 3.2e12, float("nan"), float("-inf"))]
        ['978,000', '55.4', '0.281', '2.04e-5', '3.2e12', 'NaN', '-infinity']
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "infinity" if value > 0 else "-infinity"
    rounded = float(f"{value:.3g}")
    if 1000 <= abs(rounded) < 1e9:
        return f"{rounded:,.0f}"
    digits, e, power = f"{rounded:.3g}".partition("e")
    return f"{digits}e{int(power)}" if e else digits


def share(value: float) -> str:
    """A share of one, in per cent, with two digits.

    Example:
        >>> share(0.5), share(0.0312), share(1.0), share(0.99961)
        ('50%', '3.1%', '100%', '99.96%')
    """
    if not math.isfinite(value):
        return amount(value)
    percent = 100 * value
    return f"{percent:.2f}%" if 99 < percent < 100 else f"{float(f'{percent:.2g}'):g}%"


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
