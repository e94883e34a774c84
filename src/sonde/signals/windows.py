"""The last values of each tag, oldest first: what every windowed signal keeps."""

import math

import numpy as np

from sonde.core.records import Float64

RESOLUTION = 2.0**-24
"""Rows are float32: a relative difference below this is rounding, not a change."""

FEW = 8
"""Up to so many tags plain numbers are faster than arrays, of which every operation costs as much as twenty of them."""


def empty(num_tags: int, size: int) -> Float64:
    """A window for each tag, without values yet: NaN stands where there is none."""
    return np.full((num_tags, size), np.nan)


def slide(window: Float64, values: Float64) -> Float64:
    """The windows with the newest values at the right end and the oldest ones gone.

    Finite values only: a tag without one keeps its window, so that a window holds the last values that there were,
    however long ago. Sliding copies (30 µs for 1,000 tags and 128 values) where a ring would not, but gives the
    values in the order of time, and a state that is never changed in place.

    Example:
        >>> slide(slide(empty(1, 3), np.array([1.0])), np.array([2.0]))
        array([[nan,  1.,  2.]])
    """
    moved = pushed(window, values)
    if len(values) <= FEW and all(map(math.isfinite, values.tolist())):
        return moved
    taken = np.isfinite(values)
    return moved if taken.all() else np.where(taken[:, None], moved, window)


def pushed(window: Float64, values: Float64 | float) -> Float64:
    """The same for values that are known to be finite, or for one number for all tags."""
    moved = np.empty_like(window)
    moved[:, :-1] = window[:, 1:]
    moved[:, -1] = values
    return moved
