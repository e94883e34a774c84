"""Times of rows, as a file has them."""

import numpy as np

from sonde.core.records import Float64

_YEAR_10_000 = 253_402_300_800


def sound(time: Float64) -> Float64:
    """The times, 0 in the place of those that no calendar has: NaN, infinities, years beyond 9999.

    Example:
        >>> sound(np.array([1.7e9, np.nan, 1e300])).tolist()
        [1700000000.0, 0.0, 0.0]
    """
    good = np.abs(time) < _YEAR_10_000
    return time if good.all() else np.where(good, time, 0.0)
