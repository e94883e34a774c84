"""Which layers differ from the others at one step."""

from typing import NamedTuple

import numpy as np

from sonde.core.records import Float64
from sonde.signals.medians import NORMAL_FROM_MAD, spread
from sonde.signals.windows import RESOLUTION


class Peers(NamedTuple):
    """Where the peers lie, how far they scatter, and how far each stands from them."""

    median: float
    scale: float
    z: Float64


def against_peers(values: Float64, *, min_peers: int = 5, floor: float = 0.05) -> Peers:
    """The score of each tag against all tags: z = (x − median)/scale, scale = max(1.4826·MAD, floor).

    Norms and ratios spread over orders of magnitude: give their logarithms, of which the default floor of 0.05 means
    that layers within 5% of each other are equal. NaN, infinite and missing values have no score and are nobody's
    peers. With fewer than `min_peers` values all is NaN.

    Args:
        values: One a tag, of tags of the same kind.
        min_peers: How many values there must be.
        floor: The smallest scale, in units of the values; larger means fewer outliers among layers that are alike.

    Example:
        >>> peers = against_peers(np.log([1.0, 1.2, 0.9, 1.1, 1.0, 1e-6]))
        >>> peers.z.round(1)
        array([  0. ,   1.2,  -0.7,   0.6,   0. , -92.9])
    """
    if min_peers < 2:
        raise ValueError(f"`against_peers(min_peers=...)` must be at least 2, got {min_peers}.")
    if not floor >= 0:
        raise ValueError(f"`against_peers(floor=...)` must be at least 0, got {floor}.")
    known = np.isfinite(values)
    if known.sum() < min_peers:
        return Peers(np.nan, np.nan, np.full(len(values), np.nan))
    median, mad = (float(part[0]) for part in spread(values[known][None]))
    scale = max(NORMAL_FROM_MAD * mad, floor, RESOLUTION * abs(median), float(np.finfo(np.float64).tiny))
    return Peers(median, scale, np.where(known, (np.where(known, values, median) - median) / scale, np.nan))
