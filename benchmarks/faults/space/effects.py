"""Whether some numbers are clearly worse than others, and where two courses part: plain statistics over seeds."""

import itertools
import math
from collections.abc import Sequence

import numpy as np


def cliffs_delta(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """P(ours > theirs) - P(ours < theirs) over all pairs; NaN counts as larger than any number.

    Example:
        >>> cliffs_delta([3, 4], [1, 2])
        1.0

    References:
        Cliff, "Dominance statistics: ordinal analyses to answer ordinal questions", Psychological Bulletin, 1993.
    """
    a, b = _ranked(ours), _ranked(theirs)
    signs = [(x > y) - (x < y) for x in a for y in b]
    return sum(signs) / len(signs)


def permutation_p(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """How often ours would be as large by chance alone: exact, by the sum of ranks over all ways to divide.

    With three of each the least value is 1/20.
    """
    pooled = np.asarray([*_ranked(ours), *_ranked(theirs)])
    ranks = (pooled[:, None] > pooled[None]).sum(1) + ((pooled[:, None] == pooled[None]).sum(1) - 1) / 2
    seen = ranks[: len(ours)].sum()
    sums = [ranks[list(rows)].sum() for rows in itertools.combinations(range(len(pooled)), len(ours))]
    return float(np.mean([total >= seen - 1e-9 for total in sums]))


def clearly_worse(ours: Sequence[float], theirs: Sequence[float], *, margin: float) -> bool:
    """Whether ours are larger beyond chance, nearly always, and by enough to matter.

    p ≤ 0.05, Cliff's delta ≥ 0.8 and a difference of medians of at least `margin`.

    Args:
        margin: Least difference that matters; larger means fewer faults.
    """
    if not ours or not theirs:
        return False
    far = _ranked(ours)
    difference = float(np.median(far)) - float(np.median(_ranked(theirs)))
    enough = math.isnan(difference) or difference >= margin
    return enough and cliffs_delta(ours, theirs) >= 0.8 and permutation_p(ours, theirs) <= 0.05


WINDOW = 10


def parting(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> int | None:
    """The step from which on two sets of courses are apart beyond seed noise; None where they never are.

    Means over 10 steps; in two windows in a row the difference of both sets' medians exceeds three times the mean
    distance of courses from their own set's median (seed noise), or a loss is not finite.

    Args:
        ours: A course of losses for each seed.
        theirs: Those of the twins.
    """
    num = min(map(len, (*ours, *theirs)), default=0) // WINDOW
    a, b = (np.asarray([_windows(course, num) for course in courses]).reshape(-1, num) for courses in (ours, theirs))
    apart = 0
    for place in range(num):
        here, there = a[:, place], b[:, place]
        if not np.isfinite(here).all():
            worse = True
        else:
            spread = [*np.abs(here - np.median(here)), *np.abs(there - np.median(there))]
            worse = abs(float(np.median(here) - np.median(there))) > 3 * float(np.mean(spread)) + 1e-12
        apart = apart + 1 if worse else 0
        if apart == 2:
            return (place - 1) * WINDOW
    return None


def wilson(hits: int, num: int) -> tuple[float, float]:
    """The 95% interval of a share, from 0 to 1.

    Example:
        >>> [round(end, 2) for end in wilson(0, 300)]
        [0.0, 0.01]

    References:
        Wilson, "Probable inference, the law of succession, and statistical inference", JASA, 1927.
    """
    if not num:
        return 0.0, 1.0
    z, share = 1.96, hits / num
    centre = (share + z * z / (2 * num)) / (1 + z * z / num)
    half = z * math.sqrt(share * (1 - share) / num + z * z / (4 * num * num)) / (1 + z * z / num)
    return max(0.0, centre - half), min(1.0, centre + half)


def _windows(course: Sequence[float], num: int) -> "np.ndarray":
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(course[: num * WINDOW], np.float64).reshape(num, WINDOW).mean(1)


def _ranked(values: Sequence[float]) -> list[float]:
    return [math.inf if math.isnan(value) else float(value) for value in values]
